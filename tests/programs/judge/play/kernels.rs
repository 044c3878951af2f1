//! The kernels of one context, found once, and the ways to launch them.

use std::ffi::CString;

use cachealloc_tests::driver::{Driver, Outcome};

#[derive(Clone, Copy)]
pub enum Kernel {
    LateFill,
    Copy,
    Add,
    Delay,
    Spin,
    Set,
}

const NAMES: [&str; 6] = ["late_fill", "copy", "add", "delay", "spin", "set"];

pub struct Kernels {
    functions: [u64; NAMES.len()],
}

impl Kernels {
    /// Loads kernels.ptx into the current context.
    pub fn load(driver: &Driver) -> Outcome<Kernels> {
        let module = load_module(driver)?;
        let mut functions = [0; NAMES.len()];
        for (function, name) in functions.iter_mut().zip(NAMES) {
            let name = CString::new(name).expect("a name without zeros");
            call!(driver, cuModuleGetFunction(function, module, name.as_ptr().cast()))?;
        }
        Ok(Kernels { functions })
    }

    pub fn function(&self, kernel: Kernel) -> u64 {
        self.functions[kernel as usize]
    }
}

pub fn load_module(driver: &Driver) -> Outcome<u64> {
    let text = CString::new(include_str!("../../kernels.ptx")).expect("text without zeros");
    let mut module = 0;
    call!(driver, cuModuleLoadData(&mut module, text.as_ptr().cast()))?;
    Ok(module)
}

/// How a launch passes its arguments.
pub const BY_LIST: u64 = 0;
pub const IN_ONE_BUFFER: u64 = 1;
pub const MAY_START_EARLY: u64 = 2;

pub fn launch(driver: &Driver, function: u64, stream: u64, args: &[u64], how: u64) -> Outcome {
    let places: Vec<*const u64> = args.iter().map(|arg| arg as *const u64).collect();
    let (list, none) = (places.as_ptr().cast(), std::ptr::null());
    match how {
        IN_ONE_BUFFER => {
            // At an odd address: the driver copies bytes, and does not ask how they are aligned.
            let mut buffer = vec![0_u8; args.len() * 8 + 1];
            for (index, arg) in args.iter().enumerate() {
                buffer[1 + index * 8..][..8].copy_from_slice(&arg.to_ne_bytes());
            }
            let bytes = args.len() * 8;
            let (start, size) = (&raw const buffer[1], &raw const bytes);
            let extra = [1, start as u64, 2, size as u64, 0];
            let extra = extra.as_ptr().cast();
            call!(
                driver,
                cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, std::ptr::null(), extra)
            )
        }
        MAY_START_EARLY => {
            // As CUlaunchAttribute and CUlaunchConfig: programmatic stream serialisation is on.
            let attribute = [6_u64, 1, 0, 0, 0, 0, 0, 0, 0];
            let ones = 1 | 1 << 32;
            let config = [ones, ones, ones, 0, stream, attribute.as_ptr() as u64, 1];
            call!(driver, cuLaunchKernelEx(config.as_ptr().cast(), function, list, none))
        }
        _ => call!(driver, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, list, none)),
    }
}
