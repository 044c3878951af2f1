//! Hash tables with a fixed seed. The standard seed comes from `getrandom`: glibc may cancel the
//! program's thread there, inside the library, and a seccomp filter may forbid the call.

use std::hash::{BuildHasherDefault, DefaultHasher};

type FixedSeed = BuildHasherDefault<DefaultHasher>;
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, FixedSeed>;
pub(crate) type HashSet<T> = std::collections::HashSet<T, FixedSeed>;
