//! The exported functions, one folder for each family. They only read arguments, call the model and
//! write results.

#![allow(non_snake_case)]

/// Defines exported driver functions. Several names share one body where only the meaning of
/// stream NULL or the age of the name differs.
macro_rules! driver {
    ($( fn $($name:ident),+ : $arguments:tt |$call:ident| $body:block )+) => {
        $( $( driver_one! { $name $arguments |$call| $body } )+ )+
    };
}

macro_rules! driver_one {
    ($name:ident ( $($argument:ident : $kind:ty),* $(,)? ) |$call:ident| $body:block) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(unused_variables, clippy::too_many_arguments)]
        pub extern "C" fn $name($($argument: $kind),*) -> i32 {
            crate::call::enter(stringify!($name), |$call| $body)
        }
    };
}

pub mod pointers;

pub mod contexts;
pub mod graphics;
pub mod graphs;
pub mod logs;
pub mod memory;
pub mod observe;
pub mod resolve;
pub mod work;
