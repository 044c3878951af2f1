//! The analysis against naive models, real files and hostile ones.

mod made;
mod python;
mod reading;
