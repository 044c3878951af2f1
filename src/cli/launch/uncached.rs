//! Turns the frameworks' own caches off with their own switches, so that each tensor is a separate
//! allocation. Every program gets all switches; the messages name only frameworks that its Python
//! finds.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::say;

struct Switch {
    framework: &'static str,
    /// The framework's folder among Python's packages.
    package: &'static str,
    variable: &'static str,
    value: &'static str,
}

const fn switch(
    framework: &'static str,
    package: &'static str,
    variable: &'static str,
    value: &'static str,
) -> Switch {
    Switch { framework, package, variable, value }
}

const SWITCHES: [Switch; 5] = [
    switch("PyTorch", "torch", "PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
    switch("JAX", "jaxlib", "XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    switch("JAX", "jaxlib", "XLA_PYTHON_CLIENT_ALLOCATOR", "platform"),
    switch("Paddle", "paddle", "FLAGS_use_system_allocator", "1"),
    // Allocates each tensor from one of the driver's pools.
    switch("TensorFlow", "tensorflow", "TF_GPU_ALLOCATOR", "cuda_malloc_async"),
];
/// A framework without a switch, its package, and the line that a program needs instead.
const BY_HAND: (&str, &str, &str) = ("CuPy", "cupy", "cupy.cuda.set_allocator(None)");

/// Sets the switches for this program, whose file is `executable`, and prints which it set for
/// frameworks that the program may use. A variable that the user has set to another value is left
/// alone.
pub(crate) fn set(program: &mut Command, executable: &Path) {
    let folders = package_folders(executable);
    let is_found = |package: &str| folders.iter().any(|folder| folder.join(package).is_dir());
    let mut set = Vec::new();
    for Switch { framework, package, variable, value } in SWITCHES {
        match env::var_os(variable).filter(|there| there != value) {
            None => {
                program.env(variable, value);
                if is_found(package) {
                    set.push(format!("{variable}={value} ({framework})"));
                }
            }
            Some(there) => {
                let there = there.to_string_lossy();
                say(format_args!("--uncached keeps {variable}={there} ({framework})"));
            }
        }
    }
    let (framework, package, line) = BY_HAND;
    let by_hand = is_found(package);
    if !set.is_empty() {
        say(format_args!("--uncached sets {}", set.join(", ")));
    } else if !by_hand {
        say(format_args!("--uncached sets the switches of frameworks, but found none of them"));
    }
    if by_hand {
        say(format_args!(
            "--uncached cannot disable the cache of {framework}: call {line} in the program"
        ));
    }
}

/// Returns the folders in which this interpreter finds its packages, as far as they are known
/// without starting it. Returns none if the file is not an interpreter of Python.
fn package_folders(executable: &Path) -> Vec<PathBuf> {
    let name = executable.file_name().unwrap_or_default().to_string_lossy();
    if !name.starts_with("python") {
        return Vec::new();
    }
    let mut folders: Vec<PathBuf> =
        env::var_os("PYTHONPATH").iter().flat_map(env::split_paths).collect();
    let real = fs::canonicalize(executable).ok();
    let homes = [Some(executable), real.as_deref()].into_iter().flatten();
    let mut homes: Vec<PathBuf> =
        homes.filter_map(|file| Some(file.parent()?.parent()?.to_path_buf())).collect();
    homes.extend(env::var_os("HOME").map(|home| Path::new(&home).join(".local")));
    for home in homes {
        let versions = fs::read_dir(home.join("lib")).into_iter().flatten().flatten();
        let is_python = |name: &OsStr| name.to_string_lossy().starts_with("python3");
        let versions = versions.filter(|version| is_python(&version.file_name()));
        for version in versions.map(|version| version.path()) {
            folders.extend([version.join("site-packages"), version.join("dist-packages")]);
        }
    }
    folders
}
