//! The kernels of one context, loaded once, and the ways to launch them.

use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};

use cachealloc_tests::driver::{Driver, Outcome};

#[derive(Clone, Copy)]
pub enum Kernel {
    LateFill,
    Copy,
    Add,
    Spin,
    Set,
    /// Writes to a target that is in device memory.
    IndirectFill,
    /// Spins on a word whose address is in device memory.
    IndirectSpin,
    /// Writes one word at a base and an offset.
    FillAt,
    /// Writes one word, with its address at an odd offset of a packed struct.
    FillPacked,
    /// Reads one word through a texture.
    Fetch,
    /// Takes no arguments.
    Nothing,
    /// Prints a line.
    Say,
}

const NAMES: [&str; 7] =
    ["late_fill", "copy", "add", "spin", "set", "indirect_fill", "indirect_spin"];
const REACHING: [&str; 4] = ["fill_at", "fill_packed", "fetch", "nothing"];

pub struct Kernels {
    functions: [u64; NAMES.len() + REACHING.len() + 1],
}

impl Kernels {
    /// Loads the kernels into the current context. The one that prints is loaded only if `prints`:
    /// with it the driver reserves device memory for the text.
    pub fn load(driver: &Driver, prints: bool) -> Outcome<Kernels> {
        let (module, reaching) =
            (load_module(driver)?, load(driver, include_str!("../../reach.ptx"))?);
        let own = NAMES.iter().map(|name| (module, name));
        let mut names: Vec<_> = own.chain(REACHING.iter().map(|name| (reaching, name))).collect();
        if prints {
            names.push((load(driver, include_str!("../../say.ptx"))?, &"say"));
        }
        let mut functions = [0; NAMES.len() + REACHING.len() + 1];
        // The driver reuses handles after a context has ended, and they then belong to other
        // kernels.
        static LOADED: AtomicUsize = AtomicUsize::new(0);
        let first = LOADED.fetch_add(1, Ordering::Relaxed);
        for number in (0..names.len()).map(|number| (first + number) % names.len()) {
            let (module, name) = names[number];
            functions[number] = find(driver, module, name)?;
        }
        Ok(Kernels { functions })
    }

    pub fn function(&self, kernel: Kernel) -> u64 {
        self.functions[kernel as usize]
    }
}

fn find(driver: &Driver, module: u64, name: &str) -> Outcome<u64> {
    let (mut function, name) = (0, CString::new(name).expect("a name without zeros"));
    call!(driver, cuModuleGetFunction(&mut function, module, name.as_ptr().cast()))?;
    Ok(function)
}

pub fn load_module(driver: &Driver) -> Outcome<u64> {
    load(driver, include_str!("../../kernels.ptx"))
}

fn load(driver: &Driver, text: &str) -> Outcome<u64> {
    let text = CString::new(text).expect("text without zeros");
    let mut module = 0;
    call!(driver, cuModuleLoadData(&mut module, text.as_ptr().cast()))?;
    Ok(module)
}

/// Ways in which a launch passes its arguments.
pub const BY_LIST: u64 = 0;
pub const IN_ONE_BUFFER: u64 = 1;
pub const MAY_START_EARLY: u64 = 2;
pub const COOPERATIVE: u64 = 3;
/// The first argument is at the second byte of a struct of nine bytes.
pub const PACKED: u64 = 4;

pub fn launch(driver: &Driver, function: u64, stream: u64, args: &[u64], how: u64) -> Outcome {
    let places: Vec<*const u64> = args.iter().map(|arg| arg as *const u64).collect();
    let (list, none) = (places.as_ptr().cast(), std::ptr::null());
    match how {
        IN_ONE_BUFFER => {
            // The buffer starts at an odd address: the driver copies bytes, whatever their
            // alignment.
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
            // CUlaunchAttribute and CUlaunchConfig: programmatic stream serialisation is on.
            let attribute = [6_u64, 1, 0, 0, 0, 0, 0, 0, 0];
            let ones = 1 | 1 << 32;
            let config = [ones, ones, ones, 0, stream, attribute.as_ptr() as u64, 1];
            call!(driver, cuLaunchKernelEx(config.as_ptr().cast(), function, list, none))
        }
        COOPERATIVE => {
            call!(driver, cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, list))
        }
        PACKED => {
            let mut packed = [0_u8; 9];
            packed[1..].copy_from_slice(&args[0].to_ne_bytes());
            let mut places = places.clone();
            places[0] = packed.as_ptr().cast();
            let list = places.as_ptr().cast();
            call!(driver, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, list, none))
        }
        _ => call!(driver, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, list, none)),
    }
}
