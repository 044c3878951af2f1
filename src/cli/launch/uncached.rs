//! Turns the frameworks' own caches off with their own switches, so that each tensor is a separate
//! allocation.

use std::env;
use std::process::Command;

use crate::failure::say;

/// Framework, variable and value.
const SWITCHES: [(&str, &str, &str); 4] = [
    ("PyTorch", "PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
    ("JAX", "XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    ("JAX", "XLA_PYTHON_CLIENT_ALLOCATOR", "platform"),
    // Allocates each tensor from one of the driver's pools.
    ("TensorFlow", "TF_GPU_ALLOCATOR", "cuda_malloc_async"),
];
/// A framework without a switch, and the line that a program needs instead.
const BY_HAND: (&str, &str) = ("CuPy", "cupy.cuda.set_allocator(None)");

/// Sets the switches for this program and prints which it set. A variable that the user has set to
/// another value is left alone.
pub(crate) fn set(program: &mut Command) {
    let mut set = Vec::new();
    for (framework, variable, value) in SWITCHES {
        match env::var_os(variable).filter(|there| there != value) {
            None => {
                program.env(variable, value);
                set.push(format!("{variable}={value} ({framework})"));
            }
            Some(there) => {
                let there = there.to_string_lossy();
                say(format_args!("--uncached keeps {variable}={there} ({framework})"));
            }
        }
    }
    if !set.is_empty() {
        say(format_args!("--uncached sets {}", set.join(", ")));
    }
    let (framework, line) = BY_HAND;
    say(format_args!(
        "--uncached cannot disable the cache of {framework}: call {line} in the program"
    ));
}
