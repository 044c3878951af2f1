//! The page as a file: what is embedded, what is said, and that nothing of a snapshot gets out of
//! its place. What it does in a browser: `scripts/report-test.py`.

mod embedded;
mod findings;
mod fit;
mod frameworks;
mod hostile;
mod made;
mod page;
mod self_contained;
mod told;
