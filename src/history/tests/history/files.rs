//! A file is either complete or absent.

use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use cachealloc_history::file::{self, OwnFile, Unnamed, Writer};

const WRITER: Writer = Writer { process_id: 17, sequence: 1, unnamed: None };

fn write_whole(
    path: &Path,
    writer: Writer,
    write: impl FnOnce(&mut BufWriter<OwnFile>) -> io::Result<()>,
) -> io::Result<u64> {
    file::write_whole(path, writer, |_| (), write)
}

/// Directory of one test, removed when the test ends.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(test: &str) -> Directory {
        let name = format!("history-{test}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> =
            entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn writes_and_replaces() {
    let directory = Directory::new("replaces");
    let path = directory.0.join("dump.pickle");
    for text in ["first", "second, longer", "3"] {
        let bytes = write_whole(&path, WRITER, |output| output.write_all(text.as_bytes()));
        assert_eq!(bytes.unwrap(), text.len() as u64);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(directory.names(), ["dump.pickle"]);
    }
}

#[test]
fn file_appears_only_when_complete() {
    let directory = Directory::new("before");
    let path = directory.0.join("dump.pickle");
    write_whole(&path, WRITER, |output| {
        output.write_all(&vec![7; 1 << 20])?;
        output.flush()?;
        assert!(!path.exists());
        let [name] = &directory.names()[..] else { panic!("one file") };
        assert!(name.starts_with(".dump.pickle.17.") && name.ends_with(".part"), "{name}");
        Ok(())
    })
    .unwrap();
}

/// If the file cannot get a name, or the name is another file's, its content gets one.
#[test]
fn file_without_a_name_is_copied_if_it_cannot_get_one() {
    let directory = Directory::new("unnamed");
    let path = directory.0.join("dump.pickle");
    let fails = |_: &fs::File, _: &Path| Err(ErrorKind::PermissionDenied.into());
    let names_another = |_: &fs::File, name: &Path| fs::write(name, "the program's");
    for name in [fails, names_another] {
        let writer = Writer { unnamed: Some(Unnamed { flags: libc::O_TMPFILE, name }), ..WRITER };
        write_whole(&path, writer, |output| {
            output.write_all(&vec![7; 1 << 20])?;
            output.flush()?;
            // Some file systems have no files without a name.
            assert!(directory.names().iter().all(|name| name.ends_with(".part")));
            output.write_all(b"end")
        })
        .unwrap();
        assert_eq!(directory.names(), ["dump.pickle"]);
        assert!(fs::read(&path).unwrap().ends_with(b"\x07end"));
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn an_error_leaves_the_old_file() {
    let directory = Directory::new("error");
    let path = directory.0.join("dump.pickle");
    fs::write(&path, "old").unwrap();
    let error = write_whole(&path, WRITER, |output| {
        output.write_all(b"new")?;
        Err(io::Error::new(ErrorKind::StorageFull, "no space"))
    })
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(error.to_string().contains("dump.pickle: no space"), "{error}");
    assert_eq!(directory.names(), ["dump.pickle"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
}

#[test]
fn a_panic_leaves_nothing() {
    let directory = Directory::new("panic");
    let path = directory.0.join("dump.pickle");
    let write = || write_whole(&path, WRITER, |_| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(write)).is_err());
    assert!(directory.names().is_empty());
}

#[test]
fn a_missing_directory_is_named_and_not_made() {
    let directory = Directory::new("missing");
    let path = directory.0.join("nowhere/dump.pickle");
    let error = write_whole(&path, WRITER, |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("nowhere: "), "{error}");
    assert!(directory.names().is_empty());

    fs::write(directory.0.join("file"), "").unwrap();
    let error = write_whole(&directory.0.join("file/dump"), WRITER, |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn only_files_are_replaced() {
    let directory = Directory::new("special");
    for path in [Path::new("/dev/null"), &directory.0, Path::new("/"), Path::new("..")] {
        let error = write_whole(path, WRITER, |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("not a file"), "{error}");
    }
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn leftovers_are_in_nobodys_way() {
    let directory = Directory::new("leftover");
    let path = directory.0.join("dump.pickle");
    let leftover = ".dump.pickle.17.0123456789abcdef.part";
    fs::write(directory.0.join(leftover), "half").unwrap();
    write_whole(&path, WRITER, |output| output.write_all(b"new")).unwrap();
    assert_eq!(directory.names(), [leftover, "dump.pickle"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
}

#[test]
fn the_longest_name_works() {
    let directory = Directory::new("long");
    let path = directory.0.join("é".repeat(127));
    write_whole(&path, WRITER, |output| output.write_all(b"new")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
}

/// Holds even for root.
#[test]
fn a_directory_without_permission_is_an_error() {
    let path = Path::new("/proc/dump.pickle");
    let error = write_whole(path, WRITER, |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("/proc/dump.pickle"), "{error}");
}
