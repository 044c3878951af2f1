//! The analysis against naive models, real files and hostile ones.

mod answers;
mod entries;
mod find;
mod formats;
mod hostile;
mod large;
mod made;
mod naming;
mod oracle;
mod passes;
#[path = "../../../history/tests/history/python.rs"]
mod python;
mod reading;
mod reserved;
#[path = "../../../../tests/skip.rs"]
mod skip;
#[path = "../../../../tests/tier.rs"]
mod tier;
