//! Names and lines for frames of which a snapshot has only a library and an offset.
//!
//! Snapshots contain the names that were found on the machine that wrote them. But a program may
//! run where it is stripped, and be analyzed where its debug information is. That may be beside the
//! library, at the target of a debug link, or by build-id where distributions install it or
//! debuginfod caches it.
//!
//! A snapshot of cachealloc has the build-id of each library without lines. A file with another
//! build-id is another build, and never used: a wrong name is worse than none.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use cachealloc_foreign::symbols::{self, Files, Module, Names};
use cachealloc_foreign::{Makers, open};

use crate::model::{Frame, FrameId, Snapshot, TextId, Texts};
use crate::names::is_source;

/// Prefix of the setting that holds the build-id of a library, followed by its path.
pub const BUILD_ID_SETTING: &str = "build_id ";

/// Folders with debug information by build-id: `.build-id/ab/cdef.debug`, or `abcdef/debuginfo`.
#[derive(Clone, Debug, Default)]
pub struct DebugFolders {
    pub build_id: Vec<PathBuf>,
    pub debuginfod: Vec<PathBuf>,
}

/// Result for a library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Number of its frames that got a name.
    Named(usize),
    /// The file does not exist, and there is no debug information for its build-id.
    Missing,
    /// The file belongs to another build.
    OtherBuild,
    UnknownBuild,
}

impl DebugFolders {
    /// Returns the usual folders of this machine. `lookup` reads an environment variable.
    pub fn usual(lookup: impl Fn(&str) -> Option<String>) -> DebugFolders {
        let cache = lookup("DEBUGINFOD_CACHE_PATH").map(PathBuf::from);
        let home = |variable, below: &str| lookup(variable).map(|it| Path::new(&it).join(below));
        let xdg = home("XDG_CACHE_HOME", "debuginfod_client");
        let old = home("HOME", ".debuginfod_client_cache");
        let usual = home("HOME", ".cache/debuginfod_client");
        DebugFolders {
            build_id: vec!["/usr/lib/debug/.build-id".into()],
            debuginfod: [cache, xdg, usual, old].into_iter().flatten().collect(),
        }
    }

    /// Returns the paths that may have the debug information of this build.
    fn places(&self, build_id: &str) -> Vec<PathBuf> {
        let is_hex = build_id.len() > 2 && build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex {
            return Vec::new();
        }
        let (first, rest) = build_id.split_at(2);
        let by_id = self.build_id.iter().map(|it| it.join(first).join(format!("{rest}.debug")));
        let fetched = self.debuginfod.iter().map(|it| it.join(build_id).join("debuginfo"));
        by_id.chain(fetched).collect()
    }

    fn has(&self, build_id: &str) -> bool {
        self.places(build_id).iter().any(|path| path.is_file())
    }
}

/// A function at an address, with its line if known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    pub name: String,
    pub place: Option<(String, u64)>,
}

/// Returns the functions at each of these offsets of a library, innermost first; none if unknown.
/// The offsets are return addresses, so the name is that of the call before.
///
/// The path comes from a file that may be forged, and may lead to a file of any owner. For another
/// user's file, only the symbol table is read, and only if there is a build-id to compare.
pub fn names(
    folders: &DebugFolders,
    library: &str,
    build_id: Option<&str>,
    offsets: &[u64],
) -> Result<Vec<Vec<Named>>, Outcome> {
    let Some(expected) = build_id else { return Err(Outcome::UnknownBuild) };
    let path = Path::new(library);
    let there = open(path, Makers::Anyone);
    let is_missing = there.is_err();
    let of_build = |file: &_| symbols::build_id(file).is_some_and(|id| hex(&id) == expected);
    let file = there.ok().filter(of_build);
    if file.is_none() && !folders.has(expected) {
        return Err(if is_missing { Outcome::Missing } else { Outcome::OtherBuild });
    }
    let (build_id, debug_files) = (bytes(expected), folders.places(expected));
    let module = Module { path, build_id: &build_id, file, runs: false, debug_files };
    let files = Files::default();
    let names = Names::of(module, &files);
    let at = |offset: &u64| names.at(offset.wrapping_sub(1)).into_iter().filter_map(named);
    Ok(offsets.iter().map(|offset| at(offset).collect()).collect())
}

fn named(found: symbols::Named) -> Option<Named> {
    found.name.map(|name| Named { name, place: found.place })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).filter_map(|pair| str::from_utf8(pair).ok());
    digits.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

/// Returns whether [`symbolise`] has work to do.
pub fn lack_names(snapshot: &Snapshot, folders: &DebugFolders) -> bool {
    !unnamed(snapshot, folders).is_empty()
}

/// Adds names, source files and lines to frames that have none, and the functions that were inlined
/// there. Returns the outcome for each library. `progress` is called with the number done and the
/// total.
pub fn symbolise(
    snapshot: &mut Snapshot,
    folders: &DebugFolders,
    mut progress: impl FnMut(u64, u64),
) -> BTreeMap<String, Outcome> {
    let unnamed = unnamed(snapshot, folders);
    let count = unnamed.len() as u64;
    let mut better: HashMap<FrameId, Vec<Frame>> = HashMap::new();
    let mut outcomes = BTreeMap::new();
    for (done, (library, frames)) in (0..).zip(unnamed) {
        progress(done, count);
        let build_id = snapshot.setting(&format!("{BUILD_ID_SETTING}{library}"));
        let offsets: Vec<u64> =
            frames.iter().map(|&frame| snapshot.frames.get(frame).line).collect();
        let outcome = match names(folders, &library, build_id, &offsets) {
            Err(outcome) => outcome,
            Ok(names) => {
                let before = better.len();
                for (&frame, named) in frames.iter().zip(names).filter(|(_, it)| !it.is_empty()) {
                    let old = *snapshot.frames.get(frame);
                    better.insert(frame, in_model(&mut snapshot.texts, old, named));
                }
                Outcome::Named(better.len() - before)
            }
        };
        outcomes.insert(library, outcome);
    }
    if !better.is_empty() {
        snapshot.replace_frames(&better);
    }
    outcomes
}

/// Returns by library the frames without a name. Frames without a line are included only if there
/// is debug information by build-id: opening all other files would cost seconds and seldom find
/// any.
fn unnamed(snapshot: &Snapshot, folders: &DebugFolders) -> BTreeMap<String, Vec<FrameId>> {
    let mut libraries: BTreeMap<String, Vec<FrameId>> = BTreeMap::new();
    let mut promising: HashMap<TextId, bool> = HashMap::new();
    let ours = snapshot.settings.ours.iter();
    for (key, build_id) in ours {
        let library = key.strip_prefix(BUILD_ID_SETTING).and_then(|it| snapshot.texts.find(it));
        if let Some(library) = library {
            promising.insert(library, folders.has(build_id));
        }
    }
    for (number, frame) in (0..).zip(snapshot.frames.all()) {
        let file = snapshot.texts.get(frame.filename);
        let is_unnamed = matches!(snapshot.texts.get(frame.name), "??" | "")
            || promising.get(&frame.filename).copied().unwrap_or(false);
        // An absolute path as the loader reports it, so that nothing is opened relative to the
        // current folder.
        if is_unnamed && file.starts_with('/') && !is_source(file) {
            libraries.entry(file.to_string()).or_default().push(FrameId(number));
        }
    }
    libraries
}

fn in_model(texts: &mut Texts, old: Frame, named: Vec<Named>) -> Vec<Frame> {
    let frame = |Named { name, place }| {
        let (filename, line) = match place {
            Some((path, line)) => (texts.add(&path), line),
            None => (old.filename, old.line),
        };
        Frame { name: texts.add(&name), filename, line }
    };
    named.into_iter().map(frame).collect()
}
