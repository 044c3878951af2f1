//! The page as a file: the embedded data, the sentences, and the escaping of everything that comes
//! from a snapshot. `scripts/report/test.py` tests the page in a browser.

mod embedded;
mod findings;
mod fit;
mod frameworks;
mod hostile;
mod made;
mod page;
mod self_contained;
mod told;
