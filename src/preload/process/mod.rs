//! What a process is to us: its threads, its forks and its end; and when to step aside.

pub mod bypass;
pub mod lifetime;
pub mod own_thread;
pub mod patience;
pub mod silence;
pub mod thread;
