//! Names and lines of addresses: slow, allocating, for when a snapshot is written.
//!
//! Symbols come from the module's file, found by the path that the loader named, if it still is the file
//! that was loaded. Files are opened one after the other, each once: addresses are sorted by module first.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use addr2line::Loader;

use crate::identity;
use crate::modules::{self, Module};

/// One function at one address. Where nothing is known: the name `??`, the module's path, and the
/// offset in the module in place of the line, as PyTorch's snapshots have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub name: String,
    pub filename: String,
    pub line: u64,
}

/// Symbolises (return address, epoch) in bulk. One result for each, innermost (inlined) function
/// first, never empty.
pub fn symbolise(addresses: &[(u64, u32)]) -> Vec<Vec<Symbol>> {
    modules::observe();
    let mut places: Vec<_> = addresses
        .iter()
        .enumerate()
        .map(|(index, &(address, epoch))| FrameAddress {
            module: modules::find(address, epoch),
            address,
            index,
        })
        .collect();
    places.sort_by_key(|place| (place.module_key(), place.address));
    let mut results = vec![Vec::new(); addresses.len()];
    for of_module in places.chunk_by(|a, b| a.module_key() == b.module_key()) {
        let symbols = of_module[0].module.map(Symbols::open);
        for of_address in of_module.chunk_by(|a, b| a.address == b.address) {
            let found = match &symbols {
                Some(symbols) => symbols.at(of_address[0].address),
                None => vec![unknown("??".to_owned(), of_address[0].address)],
            };
            for place in of_address {
                results[place.index].clone_from(&found);
            }
        }
    }
    results
}

struct FrameAddress {
    module: Option<&'static Module>,
    address: u64,
    index: usize,
}

impl FrameAddress {
    fn module_key(&self) -> usize {
        self.module.map_or(0, |module| core::ptr::from_ref(module).addr())
    }
}

/// The symbols of one module.
struct Symbols {
    module: &'static Module,
    path: String,
    /// The file itself, and its debug information if the distribution keeps that apart.
    files: Vec<Loader>,
}

impl Symbols {
    fn open(module: &'static Module) -> Symbols {
        let path = module.path();
        // The file of a module that is gone may be another one by now. So may that of one that is there.
        let found = module.loaded().then(|| identity::open(&path, module)).flatten();
        let present = found.and_then(|found| {
            let loader = Loader::new(&path).ok()?;
            // Replaced just now?
            let still = fs::metadata(&path).ok()?;
            let same = found.metadata().ok()?;
            ((still.dev(), still.ino()) == (same.dev(), same.ino())).then_some(loader)
        });
        // Of this very build, by its name.
        let debug = debug_file(module.build_id()).filter(|_| module.loaded());
        let debug = debug.and_then(|debug| Loader::new(debug).ok());
        Symbols { module, files: debug.into_iter().chain(present).collect(), path }
    }

    fn at(&self, address: u64) -> Vec<Symbol> {
        let offset = self.module.info(address).offset;
        // The call, not what follows it.
        let call = offset.wrapping_sub(1);
        let mut symbols = self.files.iter().find_map(|file| self.frames(file, call, offset));
        let symbols = symbols.get_or_insert_with(|| vec![unknown(self.path.clone(), offset)]);
        // The last one is the function itself, not an inlined one. Debug information may know it by
        // its short name only; the symbol table has it with its namespaces.
        let named = self.files.iter().find_map(|file| file.find_symbol(call));
        if let (Some(name), Some(function)) = (named, symbols.last_mut()) {
            function.name = addr2line::demangle_auto(name.into(), None).into_owned();
        }
        core::mem::take(symbols)
    }

    /// What the debug information says; `None` without any for this address.
    fn frames(&self, file: &Loader, call: u64, offset: u64) -> Option<Vec<Symbol>> {
        let mut symbols = Vec::new();
        let mut frames = file.find_frames(call).ok()?;
        while let Ok(Some(frame)) = frames.next() {
            let mut symbol = unknown(self.path.clone(), offset);
            if let Some(name) = frame.function.as_ref().and_then(|it| it.demangle().ok()) {
                symbol.name = name.into_owned();
            }
            let place = frame.location.and_then(|it| Some((it.file?, it.line?)));
            if let Some((file, line)) = place {
                symbol.filename = file.to_owned();
                symbol.line = line.into();
            }
            symbols.push(symbol);
        }
        (!symbols.is_empty()).then_some(symbols)
    }
}

/// The name `??` at a line that is an offset.
fn unknown(filename: String, line: u64) -> Symbol {
    Symbol { name: "??".to_owned(), filename, line }
}

/// Where distributions put the debug information of a build.
fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug"));
    path.exists().then_some(path)
}
