//! Defines the command line. Help, completions and the man page are generated from these
//! definitions.

use clap::{Parser, Subcommand};

use crate::commands::control::{limit, record, trim};
use crate::commands::{
    Result, completions, convert, diff, doctor, explain, find, findings, fit, man, options,
    recover, report, run, snapshot, stats, top, top_sites,
};

/// Run CUDA programs under a caching allocator and inspect their GPU memory.
#[derive(Parser)]
#[command(name = "cachealloc", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// A new subcommand is a variant here, a line in `run`, and a file in `commands`.
#[derive(Subcommand)]
pub(crate) enum Command {
    Run(run::Arguments),
    Doctor(doctor::Arguments),
    Snapshot(snapshot::Arguments),
    Recover(recover::Arguments),
    Record(record::Arguments),
    Trim(trim::Arguments),
    Limit(limit::Arguments),
    Stats(stats::Arguments),
    Explain(explain::Arguments),
    Top(top::Arguments),
    Report(report::Arguments),
    TopSites(top_sites::Arguments),
    Diff(diff::Arguments),
    Find(find::Arguments),
    Findings(findings::Arguments),
    Fit(fit::Arguments),
    Convert(convert::Arguments),
    Options(options::Arguments),
    Completions(completions::Arguments),
    #[command(hide = true)]
    Man(man::Arguments),
}

impl Command {
    pub(crate) fn run(self) -> Result {
        match self {
            Command::Run(arguments) => run::run(arguments),
            Command::Doctor(arguments) => doctor::run(arguments),
            Command::Snapshot(arguments) => snapshot::run(arguments),
            Command::Recover(arguments) => recover::run(arguments),
            Command::Record(arguments) => record::run(arguments),
            Command::Trim(arguments) => trim::run(arguments),
            Command::Limit(arguments) => limit::run(arguments),
            Command::Stats(arguments) => stats::run(arguments),
            Command::Explain(arguments) => explain::run(arguments),
            Command::Top(arguments) => top::run(arguments),
            Command::Report(arguments) => report::run(arguments),
            Command::TopSites(arguments) => top_sites::run(arguments),
            Command::Diff(arguments) => diff::run(arguments),
            Command::Find(arguments) => find::run(arguments),
            Command::Findings(arguments) => findings::run(arguments),
            Command::Fit(arguments) => fit::run(arguments),
            Command::Convert(arguments) => convert::run(arguments),
            Command::Options(arguments) => options::run(arguments),
            Command::Completions(arguments) => completions::run(arguments),
            Command::Man(arguments) => man::run(arguments),
        }
    }
}
