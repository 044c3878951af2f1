//! Names and lines of addresses in one module.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use cachealloc_history::file::OwnFile;
use gimli::{AbbreviationsCacheStrategy, Dwarf, DwarfPackage};
use object::{SymbolMap, SymbolMapName};

use super::files::{Files, Reading};
use super::object_file::{ObjectFile, Slice, owner};
use crate::safe_open::{Makers, is_trusted, open};

/// A function at an address, with its line if that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// Name of the function, or `None` if only a line is known.
    pub name: Option<String>,
    pub place: Option<(String, u64)>,
}

/// Description of a module before its files are opened.
pub struct Module<'m> {
    pub path: &'m Path,
    pub build_id: &'m [u8],
    /// The module's own file, if it is the right one. The caller must have checked that.
    pub file: Option<OwnFile>,
    /// Whether to read the debug information of `file` even if it belongs to another user, because
    /// the process runs its code anyway.
    pub runs: bool,
    /// Paths at which its debug information may be.
    pub debug_files: Vec<PathBuf>,
}

/// Folder in which distributions put debug information, by the path of its file.
const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// Names for the addresses of one module, from its debug information and its own file.
pub struct Names<'a> {
    files: &'a Files,
    parts: Vec<Part<'a>>,
}

struct Part<'a> {
    dwarf: Option<Context<Slice<'a>>>,
    package: Option<DwarfPackage<Slice<'a>>>,
    symbols: SymbolMap<SymbolMapName<'a>>,
    /// Users whose files may belong to this one.
    makers: Makers,
}

impl<'a> Names<'a> {
    /// Reads the files of a module.
    pub fn of(module: Module<'_>, files: &'a Files) -> Names<'a> {
        let Module { path, build_id, file, runs, mut debug_files } = module;
        let mut makers = Makers::Trusted;
        let mut own = None;
        if let Some(file) = &file {
            let reads_debug = runs
                || file.still().is_ok_and(|it| it.metadata().is_ok_and(|about| is_trusted(&about)));
            if let Some(owner) = owner(file).filter(|_| reads_debug) {
                makers = Makers::TrustedAnd(owner);
            }
            own = Reading::new(files, file).and_then(|reading| {
                let object = ObjectFile::parse(&reading)?;
                if !object.has(".debug_info") {
                    debug_files.extend(linked(path, object.debug_link()));
                }
                Some(Part::of(&object, files, Some(path), makers, reads_debug))
            });
        }
        let debug = debug_files.iter().find_map(|candidate| {
            let file = open(candidate, makers).ok()?;
            let reading = Reading::new(files, &file)?;
            let object = ObjectFile::parse(&reading)?;
            let is_of_build = !build_id.is_empty() && object.build_id() == Some(build_id);
            is_of_build.then(|| Part::of(&object, files, Some(candidate), makers, true))
        });
        Names { files, parts: debug.into_iter().chain(own).collect() }
    }

    /// Returns the functions at an address of the module's file, innermost first, or nothing if
    /// they are unknown.
    pub fn at(&self, address: u64) -> Vec<Named> {
        let found = self.parts.iter().find_map(|part| part.frames(address, self.files));
        let mut frames = found.unwrap_or_default();
        // The last frame is the function itself, not an inlined one. Debug information may have
        // only its short name; the symbol table has it with its namespaces.
        let symbol = self.parts.iter().find_map(|part| part.symbols.containing(address));
        if let Some(symbol) = symbol {
            let name = addr2line::demangle_auto(symbol.name().into(), None).into_owned();
            match frames.last_mut() {
                Some(function) => function.name = Some(name),
                None => frames.push(Named { name: Some(name), place: None }),
            }
        }
        frames
    }
}

impl<'a> Part<'a> {
    fn of(
        object: &ObjectFile<'_, 'a>,
        files: &'a Files,
        path: Option<&Path>,
        makers: Makers,
        reads_debug: bool,
    ) -> Part<'a> {
        let symbols = object.symbols();
        let (dwarf, package) = match reads_debug {
            true => {
                (context(object, files, makers), path.and_then(|it| package(it, files, makers)))
            }
            false => (None, None),
        };
        Part { dwarf, package, symbols, makers }
    }

    /// Returns the frames according to the debug information, or `None` if it has none for this
    /// address.
    fn frames(&self, address: u64, files: &'a Files) -> Option<Vec<Named>> {
        let mut lookup = self.dwarf.as_ref()?.find_frames(address);
        let mut frames = loop {
            match lookup {
                LookupResult::Output(frames) => break frames.ok()?,
                LookupResult::Load { load, continuation } => {
                    lookup = continuation.resume(self.split(load, files));
                }
            }
        };
        let mut named = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|it| it.demangle().ok());
            let place = frame.location.and_then(|it| Some((it.file?.to_owned(), it.line?.into())));
            named.push(Named { name: name.map(|name| name.into_owned()), place });
        }
        (!named.is_empty()).then_some(named)
    }

    /// Loads debug information that lies in a package or in a separate file.
    fn split(
        &self,
        load: SplitDwarfLoad<Slice<'a>>,
        files: &'a Files,
    ) -> Option<Arc<Dwarf<Slice<'a>>>> {
        let packed =
            self.package.as_ref().and_then(|it| it.find_cu(load.dwo_id, &load.parent).ok());
        if let Some(unit) = packed.flatten() {
            return Some(Arc::new(unit));
        }
        let mut path = PathBuf::new();
        for part in [load.comp_dir.as_ref(), load.path.as_ref()].into_iter().flatten() {
            path.push(OsStr::from_bytes(part.slice()));
        }
        load.path.as_ref()?;
        let file = open(&path, self.makers).ok()?;
        let reading = Reading::new(files, &file)?;
        let object = ObjectFile::parse(&reading)?;
        let load_section = |id: gimli::SectionId| Ok::<_, ()>(object.section(id.dwo_name()));
        let mut dwarf = Dwarf::load(load_section).ok()?;
        let header = dwarf.units().next().ok()??;
        if dwarf.unit(header).ok()?.dwo_id != Some(load.dwo_id) {
            return None;
        }
        dwarf.make_dwo(&load.parent);
        Some(Arc::new(dwarf))
    }
}

fn context<'a>(
    object: &ObjectFile<'_, 'a>,
    files: &'a Files,
    makers: Makers,
) -> Option<Context<Slice<'a>>> {
    if !object.has(".debug_info") && !object.has(".debug_line") {
        return None;
    }
    let mut dwarf = Dwarf::load(|id| Ok::<_, ()>(object.section(Some(id.name())))).ok()?;
    if let Some((path, build_id)) = object.shared_debug()
        && let Ok(file) = open(Path::new(OsStr::from_bytes(path)), makers)
        && let Some(reading) = Reading::new(files, &file)
        && let Some(shared) = ObjectFile::parse(&reading)
        && shared.build_id() == Some(build_id)
    {
        dwarf.load_sup(|id| Ok::<_, ()>(shared.section(Some(id.name())))).ok()?;
    }
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    Context::from_dwarf(dwarf).ok()
}

/// Opens the package of split debug information next to a file.
fn package<'a>(path: &Path, files: &'a Files, makers: Makers) -> Option<DwarfPackage<Slice<'a>>> {
    let mut name = path.file_name()?.to_os_string();
    name.push(".dwp");
    let file = open(&path.with_file_name(name), makers).ok()?;
    let reading = Reading::new(files, &file)?;
    let object = ObjectFile::parse(&reading)?;
    let empty = Slice::new(&[], gimli::LittleEndian);
    DwarfPackage::load(|id| Ok::<_, gimli::Error>(object.section(id.dwo_name())), empty).ok()
}

/// Returns the paths at which the file of a debug link may be.
fn linked(path: &Path, name: Option<&[u8]>) -> Vec<PathBuf> {
    let (Some(name), Some(folder)) = (name, path.parent().filter(|it| it.is_absolute())) else {
        return Vec::new();
    };
    let name = Path::new(OsStr::from_bytes(name));
    let below = folder.strip_prefix("/").unwrap_or(folder);
    let folders =
        [folder.to_path_buf(), folder.join(".debug"), Path::new(DEBUG_FOLDER).join(below)];
    let mut candidates: Vec<PathBuf> = folders.iter().map(|it| it.join(name)).collect();
    candidates.retain(|candidate| candidate != path);
    candidates
}
