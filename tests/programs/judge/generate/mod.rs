//! Generates programs from a seed and a theme, which sets the weights of the actions.

mod ask;
mod beside;
mod blocks;
mod cached;
mod contexts;
mod ends;
mod graphs;
mod host;
mod kept;
mod maker;
mod model;
mod order;
mod pressure;
mod references;
mod themes;
mod together;
mod uploads;
mod waits;
mod wrong;

use std::collections::HashSet;

use crate::grammar::Program;
use maker::Maker;
pub use themes::{devices_of, themes};

/// Returns the program of this seed, without actions of these names.
pub fn program(seed: u64, theme: &str, without: &HashSet<String>) -> Result<Program, String> {
    let row = themes::find(theme).ok_or_else(|| format!("unknown theme {theme}"))?;
    // Every second program orders everything itself: these are also judged in mode `relaxed`.
    let leaning = if seed.is_multiple_of(2) { 0 } else { row.leaning };
    let mut maker = Maker::new(seed.wrapping_mul(1_000_003), leaning);
    maker.begin(seed, row);
    // Each program omits some actions of its theme, and some programs are short: early operations
    // hide later ones.
    let may = row.actions.iter().filter(|(name, ..)| !without.contains(*name));
    let mut actions: Vec<_> = may.clone().filter(|_| maker.dice.chance(75)).collect();
    if actions.is_empty() {
        actions = may.collect();
    }
    let lines = if seed.is_multiple_of(3) { row.lines / 8 } else { row.lines };
    let total: usize = actions.iter().map(|(_, weight, _)| weight).sum();
    for _ in 0..lines * TRIES_OF_EACH_LINE {
        if maker.lines.len() >= lines || total == 0 {
            break;
        }
        let mut choice = maker.dice.below(total);
        for (_, weight, action) in &actions {
            if choice < *weight {
                action(&mut maker);
                break;
            }
            choice -= weight;
        }
    }
    let (lines, memory_mb, devices) = (maker.lines, row.memory_mb, row.devices);
    Ok(Program { theme: theme.into(), seed, memory_mb, devices, lines })
}

/// Number of tries per line, because an action may find nothing to do.
const TRIES_OF_EACH_LINE: usize = 20;
