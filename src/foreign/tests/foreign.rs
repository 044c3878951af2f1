//! Files that other users may have put in place of the expected ones are not opened, do not block,
//! and take no memory.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use cachealloc_foreign::symbols::{Files, Module, Named, Names, build_id};
use cachealloc_foreign::{Makers, Way, open, open_where, shared_memory};

#[path = "../../../tests/skip.rs"]
mod skip;

const SOURCE: &str = "int found(volatile int *x) { return *x + 1; }\n
static inline __attribute__((always_inline)) int inner(volatile int *x) { return *x * *x + 3; }
int outer(volatile int *x) { int y = inner(x); return *x + y; }
int main(void) { volatile int x = 1; return found(&x) + outer(&x); }\n";
const OTHER_USER: u32 = 1234;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("foreign").join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("target/ is writable");
        Folder(path)
    }

    fn program(&self, flags: &str) -> PathBuf {
        let source = self.0.join("program.c");
        fs::write(&source, SOURCE).expect("a file");
        let program = self.0.join("program");
        let flags = flags.split(' ').filter(|flag| !flag.is_empty());
        run("gcc", &[&source, Path::new("-o"), &program, Path::new("-Wl,--build-id=sha1")], flags);
        program
    }
}

#[track_caller]
fn run<'a>(tool: &str, paths: &[&Path], flags: impl Iterator<Item = &'a str>) -> String {
    let output = Command::new(tool).args(flags).args(paths).output().expect("see .ci/run");
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn address_of_found(program: &Path) -> u64 {
    address_of(program, "found")
}

fn address_of(program: &Path, function: &str) -> u64 {
    let symbols = run("nm", &[program], std::iter::empty());
    let end = format!(" T {function}");
    let line = symbols.lines().find(|line| line.ends_with(&end)).expect("the function");
    u64::from_str_radix(line.split(' ').next().expect("an address"), 16).expect("hex")
}

fn names(program: &Path, address: u64) -> Vec<Named> {
    let file = open(program, Makers::Anyone).ok();
    let id = file.as_ref().and_then(build_id).unwrap_or_default();
    let files = Files::default();
    let module = Module { path: program, build_id: &id, file, runs: true, debug_files: Vec::new() };
    Names::of(module, &files).at(address)
}

fn named(line: Option<u64>, found: &[Named]) -> bool {
    let [Named { name, place }] = found else { return false };
    name.as_deref() == Some("found") && place.as_ref().map(|place| place.1) == line
}

/// Writes 8 bytes at a place that `readelf` knows: `field` bytes into the header of a section, or
/// into its content.
fn patch(program: &Path, section: &str, in_header: Option<u64>, field: u64, value: u64) {
    let sections = run("readelf", &[program], ["-SW"].into_iter());
    let line =
        sections.lines().find(|line| line.contains(&format!("] {section} "))).expect(section);
    let (number, rest) = line.trim_start_matches([' ', '[']).split_once(']').expect("a number");
    let at = match in_header {
        Some(header_bytes) => {
            let header = run("readelf", &[program], ["-hW"].into_iter());
            let start = header.lines().find(|line| line.contains("Start of section headers"));
            let start = start.and_then(|line| line.split_whitespace().nth(4)).expect("a number");
            start.parse::<u64>().expect("a number")
                + header_bytes * number.trim().parse::<u64>().expect("a number")
        }
        None => {
            let offset = rest.split_whitespace().nth(3).expect("an offset");
            u64::from_str_radix(offset, 16).expect("hex")
        }
    };
    let file = OpenOptions::new().write(true).open(program).expect("a file");
    file.write_all_at(&value.to_le_bytes(), at + field).expect("it is written");
}

#[test]
fn only_regular_files_are_opened() {
    let folder = Folder::new("door");
    let fifo = folder.0.join("fifo");
    run("mkfifo", &[&fifo], std::iter::empty());
    for path in [&*fifo, Path::new("/dev/zero"), &*folder.0, Path::new("/proc/self/cwd")] {
        assert!(open(path, Makers::Anyone).is_err(), "{}", path.display());
    }
    let (file, link) = (folder.0.join("file"), folder.0.join("link"));
    fs::write(&file, "text").expect("a file");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    assert!(open(&link, Makers::Trusted).is_ok());
    assert!(open_where(&link, Way::ReadUnlinked, |_| true).is_err());
    assert!(open_where(&file, Way::WriteUnlinked, |_| true).is_ok());
    assert!(open_where(&file, Way::Read, |_| false).is_err());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("our own");
    assert!(open(&file, Makers::Trusted).is_err(), "anybody may have written it");
}

#[test]
fn another_users_file_is_not_trusted() {
    let folder = Folder::new("other");
    let file = folder.0.join("file");
    fs::write(&file, "text").expect("a file");
    if chown(&file, Some(OTHER_USER), None).is_err() {
        return skip::skipped("only root may give files away");
    }
    assert!(open(&file, Makers::Trusted).is_err());
    assert!(open(&file, Makers::TrustedAnd(OTHER_USER + 1)).is_err());
    assert!(open(&file, Makers::TrustedAnd(OTHER_USER)).is_ok());
}

/// Only the debug information knows an inlined function, and it lies in a separate file.
#[test]
fn a_package_of_another_user_is_not_read() {
    let folder = Folder::new("package");
    let program = folder.program("-g -gsplit-dwarf");
    let start = address_of(&program, "outer");
    let knows_inlined = || (start..start + 40).any(|address| names(&program, address).len() == 2);
    let entries = fs::read_dir(&folder.0).expect("a folder").flatten().map(|entry| entry.path());
    let mut split = entries.filter(|path| path.extension().is_some_and(|it| it == "dwo"));
    assert!(knows_inlined());
    run("mkfifo", &[&folder.0.join("program.dwp")], std::iter::empty());
    assert!(knows_inlined());
    if chown(split.next().expect("a file"), Some(OTHER_USER), None).is_err() {
        return skip::skipped("only root may give files away");
    }
    assert!(!knows_inlined());
}

#[test]
fn false_sizes_allocate_no_memory() {
    let folder = Folder::new("lies");
    // How the file is changed, and whether its lines are found afterwards.
    type Lie = fn(&Path);
    let lies: [(&str, Lie, Option<bool>); 6] = [
        ("-g", |_| (), Some(true)),
        ("-g -gz=zlib", |_| (), Some(true)),
        ("-g", |it| resize(it, 1 << 40), Some(true)),
        ("-g", |it| resize(it, fs::metadata(it).expect("it").len() / 2), None),
        (
            "-g",
            |it| (resize(it, 1 << 40), patch(it, ".debug_info", Some(64), 32, 1 << 39)).1,
            Some(false),
        ),
        ("-g -gz=zlib", |it| patch(it, ".debug_info", None, 8, 1 << 40), Some(false)),
    ];
    for (number, (flags, lie, lines)) in lies.iter().enumerate() {
        let program = folder.program(flags);
        let address = address_of_found(&program);
        lie(&program);
        let found = names(&program, address);
        match lines {
            Some(lines) => assert!(named(lines.then_some(1), &found), "{number}: {found:?}"),
            None => assert_eq!(found, [], "{number}"),
        }
    }
    assert!(peak_mebibytes() < 200, "{} MiB", peak_mebibytes());
}

fn resize(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).and_then(|it| it.set_len(bytes)).expect("a file");
}

fn peak_mebibytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

/// The beginning of the names of statistics also begins those of histories, which name no owner
/// there.
#[test]
fn a_name_tells_the_owner_of_its_kind_of_file_only() {
    let of = |begin, name| shared_memory::owner_of_name(begin, name).map(|it| it.process_id);
    let (statistics, history) = ("cachealloc-", "cachealloc-history-");
    assert_eq!(of(statistics, "cachealloc-0-4026531836-2182"), Some(2182));
    assert_eq!(of(statistics, "cachealloc-1000-4026531836-2182.00ff"), Some(2182));
    assert_eq!(of(statistics, "cachealloc-history-0-4026531836-2182-55"), None);
    assert_eq!(of(history, "cachealloc-history-0-4026531836-2182-55"), Some(2182));
}

/// The file is cut while it is open.
#[test]
fn a_file_may_be_cut_short_at_any_time() {
    let folder = Folder::new("cut");
    let program = folder.program("-g");
    let address = address_of_found(&program);
    let file = open(&program, Makers::Trusted).expect("a file");
    let id = build_id(&file).expect("it has one");
    resize(&program, 100);
    let files = Files::default();
    let module =
        Module { path: &program, build_id: &id, file: Some(file), runs: true, debug_files: vec![] };
    assert_eq!(Names::of(module, &files).at(address), []);
}
