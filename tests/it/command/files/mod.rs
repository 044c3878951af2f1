//! Subcommands that read snapshots, and the files that they write.

mod find;
mod findings;
mod fitting;
mod graph_nodes;
mod output;
mod report;
mod schema;
pub mod sites;
