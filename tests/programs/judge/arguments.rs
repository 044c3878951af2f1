//! The command line.
//!
//! | argument | meaning |
//! |---|---|
//! | `--seeds A..B` | which seeds |
//! | `--theme T` | one theme, `all`, or `scarce`: those that make memory scarce |
//! | `--conf C` | settings of the library, repeatable; default: those of `campaign.rs` |
//! | `--lib LIB`, `--driver DIR` | the library, and the folder of the simulated driver |
//! | `--gpu` | the compared runs use this machine's own driver |
//! | `--jobs N`, `--seconds N` | how many in parallel; when to stop |
//! | `--batch N` | number of programs played in one process, one after the other |
//! | `--without a,b` | actions that are not generated |
//! | `--break RULE` | a rule of the library to leave out |
//! | `--first` | stop at the first finding |
//! | `--no-shrink` | report findings as they are |
//! | `--out DIR` | the folder for shrunk programs |

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use crate::driver_crashes::DriverCrashes;
use crate::ending::Ending;
use crate::play::{Options, Pace};
use crate::run::Machine;

#[derive(Default)]
pub struct Arguments {
    free: Vec<String>,
    named: HashMap<String, Vec<String>>,
}

const WITHOUT_VALUE: [&str; 5] = ["gpu", "first", "no-shrink", "cached", "quiet"];

impl Arguments {
    pub fn parse(words: &[String]) -> Result<Arguments, String> {
        let mut arguments = Arguments::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                arguments.free.push(word.clone());
                continue;
            };
            let value = match WITHOUT_VALUE.contains(&name) {
                true => String::new(),
                false => words.next().ok_or_else(|| format!("{word} wants a value"))?.clone(),
            };
            arguments.named.entry(name.to_string()).or_default().push(value);
        }
        Ok(arguments)
    }

    pub fn free(&self, index: usize) -> Result<String, String> {
        self.free.get(index).cloned().ok_or_else(|| "an argument is missing".into())
    }

    pub fn files(&self) -> &[String] {
        &self.free
    }

    pub fn has(&self, name: &str) -> bool {
        self.named.contains_key(name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.named.get(name).and_then(|values| values.last()).map(String::as_str)
    }

    pub fn texts(&self, name: &str) -> Vec<String> {
        self.named.get(name).cloned().unwrap_or_default()
    }

    pub fn number(&self, name: &str, default: u64) -> Result<u64, String> {
        let Some(text) = self.text(name) else { return Ok(default) };
        text.parse().map_err(|_| format!("--{name} {text}?"))
    }

    pub fn seeds(&self) -> Result<std::ops::Range<u64>, String> {
        let text = self.text("seeds").unwrap_or("1..101");
        let read = || {
            let (first, end) = text.split_once("..")?;
            Some(first.parse().ok()?..end.parse().ok()?)
        };
        read().ok_or_else(|| format!("--seeds {text}?"))
    }

    /// Names of the actions that are not to be generated.
    pub fn without(&self) -> HashSet<String> {
        self.text("without").unwrap_or("").split(',').map(str::to_string).collect()
    }

    pub fn machine(&self) -> Result<Machine, String> {
        // The loader does not look in the current folder, and only warns of what it does not find.
        let path = |name: &str| {
            let path = self.text(name).ok_or_else(|| format!("--{name} is missing"))?;
            std::fs::canonicalize(path).map_err(|error| format!("--{name} {path}: {error}"))
        };
        let own = format!("judge-{}", std::process::id());
        let scratch = match self.text("scratch") {
            Some(folder) => PathBuf::from(folder),
            None => std::env::temp_dir().join(own),
        };
        Ok(Machine {
            simulator: path("driver")?,
            library: path("lib")?,
            gpu: self.has("gpu"),
            gpu_name: None,
            scratch,
            broken: self.text("break").unwrap_or("").to_string(),
            ending: Ending::never(),
            crashes: DriverCrashes::default(),
        })
    }

    /// How the program of this number is played: each program has its own log, and its own list of
    /// refused requests.
    pub fn play_options(&self, number: usize) -> Result<Options, String> {
        let pace = self.text("pace").unwrap_or("mixed1");
        let own = |name: &str| self.named.get(name).and_then(|values| values.get(number));
        let refused = own("refused").map_or("", String::as_str).split(',');
        Ok(Options {
            pace: Pace::parse(pace).ok_or_else(|| format!("--pace {pace}?"))?,
            log: own("log").map_or("/dev/null", String::as_str).to_string(),
            refused: refused.filter_map(|line| line.parse().ok()).collect(),
            cached: self.has("cached"),
            gpu: self.has("gpu"),
        })
    }
}
