//! Names and lines of addresses: slow and allocating, for use when a snapshot is written.
//!
//! Symbols come from the module's file, found by the loader's name, if it still is the file that
//! was loaded. Files are opened one after the other, each once: addresses are sorted by module
//! first.

use std::path::{Path, PathBuf};

use cachealloc_foreign::symbols::{self, Files, Named, Names};

use crate::identity;
use crate::modules::{self, Module};

/// One function at one address. If nothing is known: the name `??`, the module's path, and the
/// offset in the module in place of the line, as in PyTorch's snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub name: String,
    pub filename: String,
    pub line: u64,
}

/// Symbolizes (return address, epoch) pairs in bulk. Returns one result for each, innermost
/// (inlined) function first, never empty.
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
        let files = Files::default();
        let symbols = of_module[0].module.map(|module| Symbols::open(module, &files));
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

/// Symbols of one module.
struct Symbols<'a> {
    module: &'static Module,
    path: String,
    names: Names<'a>,
}

impl<'a> Symbols<'a> {
    fn open(module: &'static Module, files: &'a Files) -> Symbols<'a> {
        let path = module.path();
        // The path may lead to another file by now, whether or not the module is still loaded.
        let is_loaded = module.loaded();
        let file = is_loaded.then(|| identity::open(&module.file(), module)).flatten();
        let debug_files = debug_file(module.build_id()).filter(|_| is_loaded);
        let names = Names::of(
            symbols::Module {
                path: Path::new(&path),
                build_id: module.build_id(),
                file,
                runs: true,
                debug_files: debug_files.into_iter().collect(),
            },
            files,
        );
        Symbols { module, path, names }
    }

    fn at(&self, address: u64) -> Vec<Symbol> {
        let offset = self.module.info(address).offset;
        // Look up the call, not the instruction after it.
        let found =
            self.names.at(offset.wrapping_sub(1)).into_iter().map(|Named { name, place }| {
                let (filename, line) = place.unwrap_or_else(|| (self.path.clone(), offset));
                Symbol { name: name.unwrap_or_else(|| "??".to_owned()), filename, line }
            });
        let mut found: Vec<Symbol> = found.collect();
        if found.is_empty() {
            found.push(unknown(self.path.clone(), offset));
        }
        found
    }
}

/// Returns the name `??` with an offset in place of the line.
fn unknown(filename: String, line: u64) -> Symbol {
    Symbol { name: "??".to_owned(), filename, line }
}

/// Returns the path where distributions put the debug information of a build.
fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug"));
    Some(path)
}
