//! A file that is either complete or absent: it is written without a name or under a temporary one
//! in the same directory, then renamed. A reader never sees half of it, and a process that is
//! killed while writing leaves the previous file unchanged. Without a name, nothing else remains.

use std::fs::{self, File, Metadata, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Makes the temporary name unique.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    pub process_id: u32,
    /// Counts the files of this process, because two threads may write the same one.
    pub sequence: u64,
    /// How to write files without a name, if the caller can give them one later.
    pub unnamed: Option<Unnamed>,
}

/// Files without a name. They vanish with the process. Not every file system has them.
#[derive(Clone, Copy, Debug)]
pub struct Unnamed {
    /// `O_TMPFILE`, whose value depends on the processor.
    pub flags: i32,
    /// Gives the file a name that does not exist yet.
    pub name: fn(&File, &Path) -> io::Result<()>,
}

/// Writes the output of `write` to the file and returns the number of bytes. Replaces an existing
/// file. After an error, neither a new file nor a temporary one remains; the error names the path.
/// `note` receives a temporary name before a file has it: a caller that is interrupted can remove
/// it.
///
/// Directories are not created: a missing one is more often a mistake. A path that is not a regular
/// file, such as `/dev/null`, is not replaced.
pub fn write_whole(
    path: &Path,
    writer: Writer,
    note: impl Fn(Option<&Path>),
    write: impl FnOnce(&mut BufWriter<OwnFile>) -> io::Result<()>,
) -> io::Result<u64> {
    check_target(path)?;
    let unnamed = writer.unnamed.and_then(|unnamed| Some((unnamed, unnamed.create(path)?)));
    let (temporary, bytes) = match unnamed {
        Some((unnamed, file)) => {
            let (bytes, file) = write_file(file, write).map_err(|error| about(path, &error))?;
            (unnamed.named(&file, path, writer, note)?, bytes)
        }
        None => {
            let (temporary, file) = Temporary::create(path, writer, note, new_file)?;
            let (bytes, _) = write_file(file, write).map_err(|error| about(path, &error))?;
            (temporary, bytes)
        }
    };
    fs::rename(&temporary.0, path).map_err(|error| about(path, &error))?;
    // The temporary name no longer exists: the file has been renamed.
    std::mem::forget(temporary);
    Ok(bytes)
}

/// Removes the file unless it was forgotten: after an error, and after a panic of `write`.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // The file may not exist: creating it may be the step that failed.
        let _ = fs::remove_file(&self.0);
    }
}

fn check_target(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|target| !target.is_file()) {
        let what = format!("{}: is there, and is not a file", path.display());
        return Err(io::Error::new(ErrorKind::InvalidInput, what));
    }
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => return Ok(()),
    };
    match fs::metadata(directory) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => {
            let what = format!("{}: is not a directory", directory.display());
            Err(io::Error::new(ErrorKind::NotADirectory, what))
        }
        Err(error) => {
            let what = format!("directory {}: {error}", directory.display());
            Err(io::Error::new(error.kind(), what))
        }
    }
}

fn new_file(name: &Path) -> io::Result<OwnFile> {
    let file = OpenOptions::new().write(true).create_new(true).open(name)?;
    OwnFile::new(new_above_standard(file)?)
}

impl Unnamed {
    /// Creates a file in the directory of `path`, if its file system can.
    fn create(&self, path: &Path) -> Option<OwnFile> {
        let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(self.flags);
        let file = options.open(directory.unwrap_or(Path::new("."))).ok()?;
        OwnFile::new(new_above_standard(file).ok()?).ok()
    }

    /// Gives the file a temporary name. If that is not permitted, copies it to a file that has one.
    fn named(
        &self,
        file: &OwnFile,
        path: &Path,
        writer: Writer,
        note: impl Fn(Option<&Path>),
    ) -> io::Result<Temporary> {
        let link = |name: &Path| {
            (self.name)(file.still()?, name)?;
            // The program may have taken the number meanwhile.
            let is_ours = fs::symlink_metadata(name).is_ok_and(|about| file.is(&about));
            let removed = || fs::remove_file(name).and(Err(taken()));
            if is_ours { Ok(()) } else { removed() }
        };
        if let Ok((temporary, ())) = Temporary::create(path, writer, &note, link) {
            return Ok(temporary);
        }
        let (temporary, mut copy) = Temporary::create(path, writer, note, new_file)?;
        let copied = (|| {
            file.still()?.rewind()?;
            io::copy(&mut file.still()?, &mut copy)
        })();
        copied.map(|_| temporary).map_err(|error| about(path, &error))
    }
}

impl Temporary {
    /// Calls `make` with an unpredictable name, under which it creates a file. Others may write
    /// into the same directory; they must neither take the name first nor make us open the target
    /// of a link.
    fn create<T>(
        path: &Path,
        writer: Writer,
        note: impl Fn(Option<&Path>),
        make: impl Fn(&Path) -> io::Result<T>,
    ) -> io::Result<(Temporary, T)> {
        const ATTEMPTS_MAX: u32 = 16;
        for _ in 0..ATTEMPTS_MAX {
            let name = temporary_path(path, writer)?;
            note(Some(&name));
            match make(&name) {
                Ok(made) => return Ok((Temporary(name), made)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => note(None),
                Err(error) => return Err(about(path, &error)),
            }
        }
        Err(about(path, &ErrorKind::AlreadyExists.into()))
    }
}

/// A file whose descriptor number the program may take: a program that closes all descriptors it
/// does not know reuses the number for its own file, which we must neither write nor close.
#[derive(Debug)]
pub struct OwnFile {
    /// Always present, except in `into_file` and `drop`.
    file: Option<File>,
    device: u64,
    inode: u64,
}

impl OwnFile {
    pub fn new(file: File) -> io::Result<OwnFile> {
        let about = file.metadata()?;
        Ok(OwnFile { file: Some(file), device: about.dev(), inode: about.ino() })
    }

    /// Returns the file. The caller must know that the program has not taken its number.
    pub fn into_file(mut self) -> File {
        self.file.take().expect("it is open until then")
    }

    /// Returns the file if the number still refers to it.
    ///
    /// # Errors
    ///
    /// Fails if the number now refers to another file.
    pub fn still(&self) -> io::Result<&File> {
        let is_it = |file: &&File| file.metadata().is_ok_and(|about| self.is(&about));
        self.file.as_ref().filter(is_it).ok_or_else(taken)
    }

    fn is(&self, about: &Metadata) -> bool {
        (about.dev(), about.ino()) == (self.device, self.inode)
    }
}

fn taken() -> io::Error {
    io::Error::other("the program has closed its descriptor")
}

impl Read for OwnFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.still()?.read(bytes)
    }
}

impl Write for OwnFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.still()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if self.file.is_some() && self.still().is_err() {
            let _ = self.file.take().map(File::into_raw_fd); // the number is another file's
        }
    }
}

/// Moves the file to a descriptor number above the standard ones. Those belong to the program: if
/// it has closed them, it may still write to them, and a newly opened file gets the lowest free
/// number.
pub fn above_standard(file: File) -> io::Result<File> {
    // `try_clone` of std never returns a standard number.
    if is_standard(&file) { file.try_clone() } else { Ok(file) }
}

/// Like `above_standard`, for a file that is still empty, which it empties again after moving it.
pub fn new_above_standard(file: File) -> io::Result<File> {
    if !is_standard(&file) {
        return Ok(file);
    }
    let mut file = above_standard(file)?;
    file.set_len(0)?;
    file.rewind()?;
    Ok(file)
}

fn is_standard(file: &File) -> bool {
    const STANDARD_MAX: i32 = 2;
    file.as_raw_fd() <= STANDARD_MAX
}

/// Returns a name that is hidden, recognizable after a crash and unpredictable.
fn temporary_path(path: &Path, writer: Writer) -> io::Result<PathBuf> {
    let Some(name) = path.file_name() else {
        let what = format!("{}: is not the name of a file", path.display());
        return Err(io::Error::new(ErrorKind::InvalidInput, what));
    };
    let name = name.to_string_lossy();
    let name = &name[..name.floor_char_boundary(NAME_PART_BYTES_MAX)];
    let Writer { process_id, sequence, .. } = writer;
    // std seeds the keys of its hashes with the system's random numbers.
    let random = RandomState::new().hash_one((process_id, sequence));
    Ok(path.with_file_name(format!(".{name}.{process_id}.{random:016x}.part")))
}

/// Limit below the 255 bytes that file systems allow for a name.
const NAME_PART_BYTES_MAX: usize = 200;

fn write_file(
    file: OwnFile,
    write: impl FnOnce(&mut BufWriter<OwnFile>) -> io::Result<()>,
) -> io::Result<(u64, OwnFile)> {
    let mut output = BufWriter::with_capacity(BUFFER_BYTES, file);
    write(&mut output)?;
    output.flush()?;
    let file = output.into_inner().map_err(|error| error.into_error())?;
    let bytes = file.still()?.metadata()?.len();
    Ok((bytes, file))
}

const BUFFER_BYTES: usize = 1 << 17;

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
