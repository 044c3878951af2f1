//! Makes programs from a seed and a theme: what the theme does more of, by weights.

mod ask;
mod beside;
mod blocks;
mod contexts;
mod graphs;
mod host;
mod known;
mod maker;
mod model;
mod order;
mod pressure;
mod themes;
mod together;

use std::collections::HashSet;

use crate::grammar::Program;
pub use known::known;
use maker::Maker;
pub use themes::themes;

/// The program of this seed.
pub fn program(seed: u64, theme: &str, known: &HashSet<String>) -> Result<Program, String> {
    let row = themes::find(theme).ok_or_else(|| format!("there is no theme {theme}"))?;
    let mut maker = Maker::new(seed.wrapping_mul(1_000_003), row.leaning, known);
    let memory_mb = row.memory_mb;
    maker.begin(seed, row);
    let total: usize = row.actions.iter().map(|(_, weight, _)| weight).sum();
    while maker.lines.len() < row.lines {
        let mut choice = maker.dice.below(total);
        for (name, weight, action) in row.actions {
            if choice < *weight {
                if maker.wants(name) {
                    action(&mut maker);
                }
                break;
            }
            choice -= weight;
        }
    }
    let lines = maker.lines;
    Ok(Program { theme: theme.into(), seed, memory_mb, lines })
}
