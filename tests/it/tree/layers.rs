//! Checks the layers of `src/README.md`: a file imports only from its own layer and from those
//! above it in that table, and import cycles contain no more files than listed here. No folder of
//! the project has more files than a reader can survey.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cachealloc_tests::root;

/// Number of files in the largest import cycle of each crate: it may only shrink.
const LARGEST_CIRCLES: [(&str, usize); 13] = [
    ("text", 1),
    ("core", 4),
    ("options", 1),
    ("statistics", 1),
    ("history", 2),
    ("foreign", 1),
    ("stacks", 1),
    ("python", 1),
    ("preload", 6),
    ("analysis", 2),
    ("fit", 1),
    ("report", 1),
    ("cli", 14),
];

/// Imports of a file from a layer below its own in the table, with reasons. The list may only
/// shrink.
const UPWARD: &[(&str, &str, &str)] = &[
    ("preload/cache/free", "preload/ipc/exported_blocks", EXPORTED),
    ("preload/cache/miss", "preload/trim/scavenger", "the first miss starts the scavenger"),
    ("preload/cache/red_zones", "preload/snapshots", "an overrun asks for a snapshot"),
    ("preload/contexts/lookup", "preload/assembly/creation", SEEN),
    ("preload/contexts/lookup", "preload/assembly/end", SEEN),
    ("preload/driver_memory/breakdown", "preload/assembly/reading", REPORTS),
    ("preload/driver_memory/breakdown", "preload/snapshots/contents", REPORTS),
    ("preload/driver_memory/forecast", "preload/cache/pools", POOLS),
    ("preload/driver_memory/measured", "preload/cache/pools", POOLS),
    ("preload/graphs/pools", "preload/cache/blocks", CAPTURED),
    ("preload/graphs/private_pools", "preload/cache/blocks", CAPTURED),
    ("preload/graphs/private_pools", "preload/cache/miss", CAPTURED),
    ("preload/memory_hooks", "preload/driver_memory/table", REPEATED),
    ("preload/memory_hooks", "preload/graphs/graph_memory", REPEATED),
    ("preload/ordering/barrier", "preload/cache/stream_frees", PASSED),
    ("preload/ordering/captures", "preload/graphs/open_captures", CAPTURES),
    ("preload/ordering/captures", "preload/graphs/participants", CAPTURES),
    ("preload/ordering/captures", "preload/graphs/pools", CAPTURES),
    ("preload/ordering/native_wait", "preload/cache/release", PASSED),
    ("preload/ordering/native_wait", "preload/cache/stream_frees", PASSED),
    ("preload/process/library_thread", "preload/state/thread", "its threads are marked as such"),
    ("preload/snapshots/contents", "preload/out_of_memory/noted", FAILED),
    ("preload/snapshots/triggers", "preload/assembly/report", "statistics are written at the end"),
    ("preload/snapshots/triggers", "preload/out_of_memory/told", FAILED),
    ("preload/state/inflight_releases", "preload/statistics/waits", "waits are counted"),
];

const EXPORTED: &str = "a free retires a block that another process may have mapped";
const SEEN: &str =
    "the first call in a context creates its record and ends the one with its handle";
const REPORTS: &str =
    "the breakdown adds the rows of the cache, and names libraries as a snapshot does";
const POOLS: &str = "what the default pool holds is a row";
const CAPTURED: &str = "a request of a capture misses like any other";
const REPEATED: &str = "a hook table that is registered late receives what exists already";
const PASSED: &str = "a wait that has ended makes blocks reusable";
const CAPTURES: &str = "a free asks whether its block belongs to a capture";
const FAILED: &str = "a snapshot holds the failed requests, and their report is written first";

/// Maximum number of files in one folder.
const FILES_PER_FOLDER_MAX: usize = 20;

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../src")
}

/// Returns the imports of each file without tests. Files are named by their path from `src` without
/// `.rs` and `/mod`.
fn imports() -> BTreeMap<String, BTreeSet<String>> {
    let mut texts = BTreeMap::new();
    read(&source(), &mut texts);
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, (is_folder, text)) in &texts {
        let code: Vec<&str> = text.lines().map(without_comment).collect();
        let code = code.join("\n");
        let target = |path: String| find(&texts, file, *is_folder, &path);
        let found = paths_in(&code).into_iter().filter_map(target);
        imports.insert(file.clone(), found.filter(|found| found != file).collect());
    }
    imports
}

/// Whether the file is its folder's module file, and its text.
type Texts = BTreeMap<String, (bool, String)>;

fn read(folder: &Path, texts: &mut Texts) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" && name != "build" {
            read(&path, texts);
        } else if name.ends_with(".rs") && name != "build.rs" {
            let inside = path.strip_prefix(source()).expect("below").to_string_lossy().into_owned();
            let module = inside.trim_end_matches(".rs");
            let of_folder =
                ["/mod", "/lib", "/main"].iter().find_map(|end| module.strip_suffix(end));
            let text = fs::read_to_string(&path).expect("a source file");
            texts.insert(of_folder.unwrap_or(module).into(), (of_folder.is_some(), text));
        }
    }
}

fn without_comment(line: &str) -> &str {
    line.split("//").next().expect("what is before")
}

/// Returns every path of two names or more, with each name in braces separately.
fn paths_in(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("::") {
        let start =
            code[..at].rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |i| i + 1);
        let head = &code[start..at];
        // A name that a module re-exports from its child is not one that it uses.
        let is_handed_on = matches!(code[..start].split_whitespace().rev().nth(1), Some(word) if word.starts_with("pub"))
            && code[..start].ends_with("use ")
            && !matches!(head, "crate" | "super");
        if !head.is_empty() && !is_handed_on && !code[..start].ends_with("::") {
            expand(head.to_string(), &code[at + 2..], &mut paths);
        }
    }
    paths
}

/// Adds the paths of one tree of imports, and returns where it ends.
fn expand(before: String, rest: &str, paths: &mut Vec<String>) -> usize {
    let word_end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let after = &rest[word_end..];
    if word_end > 0 {
        let path = format!("{before}::{}", &rest[..word_end]);
        if let Some(more) = after.strip_prefix("::") {
            return word_end + 2 + expand(path, more, paths);
        }
        paths.push(path);
        return word_end;
    }
    let Some(mut inner) = rest.strip_prefix('{') else {
        paths.push(before);
        return 0;
    };
    let whole = inner.len();
    loop {
        inner = inner.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        if inner.is_empty() || inner.starts_with('}') {
            return 1 + whole - inner.len();
        }
        let end = expand(before.clone(), inner, paths).max(1);
        inner = &inner[end..];
        // Skips `as name`.
        inner = &inner[inner.find([',', '}']).unwrap_or(inner.len())..];
    }
}

/// Returns the file to which a path in another file leads, or `None` if it is no file of this
/// project.
fn find(texts: &Texts, file: &str, is_folder: bool, path: &str) -> Option<String> {
    let crate_of = |file: &str| -> String { file.split('/').next().expect("a folder").into() };
    let above = |file: &str| file.rsplit_once('/').map_or(String::new(), |(above, _)| above.into());
    let mut parts = path.split("::");
    let mut place = match parts.next()? {
        "crate" => crate_of(file),
        "self" => file.to_string(),
        "super" if is_folder => above(file),
        "super" => above(file),
        // A crate's root is its interface, not a part of what it re-exports.
        child if file.contains('/') && is_module(texts, &format!("{file}/{child}")) => {
            format!("{file}/{child}")
        }
        krate => krate.strip_prefix("cachealloc_")?.into(),
    };
    for part in parts {
        let inside = format!("{place}/{part}");
        if part == "super" {
            place = above(&place);
        } else if is_module(texts, &inside) {
            place = inside;
        } else {
            break;
        }
    }
    texts.contains_key(&place).then_some(place)
}

/// Whether this is a file or a folder of modules.
fn is_module(texts: &Texts, path: &str) -> bool {
    texts.contains_key(path) || texts.keys().any(|file| file.starts_with(&format!("{path}/")))
}

/// Returns the layers of the table as paths from `src`, starting with the lowest.
fn layers() -> Vec<Vec<String>> {
    let text = fs::read_to_string(source().join("README.md")).expect("src/README.md");
    let (_, table) = text.split_once("## Layers").expect("the layers");
    let (table, _) = table.split_once("\n## ").expect("the next part");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let first_cell = |row: &str| row.split('|').nth(1).expect("a cell").to_string();
    let names = |cell: String| cell.split('`').skip(1).step_by(2).map(String::from).collect();
    rows.map(|row| names(first_cell(row))).collect()
}

/// Returns the layer of a file: the one with the longest name that is a prefix of its path.
fn layer_of(layers: &[Vec<String>], file: &str) -> Option<usize> {
    let inside = |name: &str| file == name || file.starts_with(&format!("{name}/"));
    let names =
        layers.iter().enumerate().flat_map(|(at, names)| names.iter().map(move |n| (at, n)));
    names.filter(|(_, name)| inside(name)).max_by_key(|(_, name)| name.len()).map(|(at, _)| at)
}

#[test]
fn imports_follow_the_layers() {
    let layers = layers();
    let (mut wrong, mut seen) = (BTreeSet::new(), 0);
    for (file, imported) in &imports() {
        // The root of a crate declares its modules.
        let Some(own) = layer_of(&layers, file) else {
            assert!(file == "preload", "{file}: in no layer of src/README.md");
            continue;
        };
        for target in imported.iter().filter(|target| *target != "preload") {
            let other = layer_of(&layers, target);
            let is_known = UPWARD.iter().any(|(from, to, _)| from == file && to == target);
            match other {
                Some(other) if other <= own => assert!(!is_known, "{file}, {target}: not upward"),
                _ if is_known => seen += 1,
                _ => _ = wrong.insert((file.clone(), target.clone(), layers[own][0].clone())),
            }
        }
    }
    assert_eq!(seen, UPWARD.len(), "an import in the list of those upward is no more");
    let say = |(file, target, layer): &(String, String, String)| {
        format!("{file} imports {target}: the layer of {layer} may not use that (src/README.md)")
    };
    assert!(wrong.is_empty(), "{}", wrong.iter().map(say).collect::<Vec<_>>().join("\n"));
}

#[test]
fn circles_only_shrink() {
    let imports = imports();
    let mut wrong = Vec::new();
    for (krate, largest) in LARGEST_CIRCLES {
        let own: BTreeSet<&String> = imports.keys().filter(|f| f.starts_with(krate)).collect();
        let mut circles: Vec<Vec<&String>> = Vec::new();
        let mut left = own.clone();
        while let Some(first) = left.pop_first() {
            let forth = reached(&own, first, |file| imports[file].iter().collect());
            let back = |file: &String| {
                own.iter().copied().filter(|other| imports[*other].contains(file)).collect()
            };
            let back = reached(&own, first, back);
            let circle: Vec<_> = forth.intersection(&back).copied().collect();
            circle.iter().for_each(|file| _ = left.remove(*file));
            circles.push(circle);
        }
        let found = circles.iter().max_by_key(|circle| circle.len()).expect("files");
        if found.len() != largest {
            wrong.push(format!("{krate}: {}, not {largest}: {found:?}", found.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the file itself, and all files that it reaches.
fn reached<'a>(
    own: &BTreeSet<&'a String>,
    from: &'a String,
    next: impl Fn(&'a String) -> Vec<&'a String>,
) -> BTreeSet<&'a String> {
    let mut seen = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        let more = next(file).into_iter().filter_map(|file| own.get(file).copied());
        open.extend(more.filter(|file| seen.insert(file)));
    }
    seen
}

/// Every folder of the project, with documents, scripts, samples and data.
#[test]
fn folders_stay_small() {
    let mut large = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        let mut count = 0;
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() && !is_generated_folder(&name) {
                folders.push(path);
            } else if path.is_file() && !name.ends_with(".pyc") && !name.ends_with(".pickle") {
                count += 1;
            }
        }
        if count > FILES_PER_FOLDER_MAX {
            large.push(format!("{}: {count}", folder.display()));
        }
    }
    assert!(large.is_empty(), "more than {FILES_PER_FOLDER_MAX} files in {large:?}");
}

/// Whether git ignores the folders of this name, or owns them.
fn is_generated_folder(name: &str) -> bool {
    name.starts_with('.') || ["target", "__pycache__"].contains(&name)
}
