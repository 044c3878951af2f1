//! Live statistics for other processes, and control commands from them: a file in `/dev/shm` with
//! the layout of `cachealloc_statistics::page`.
//!
//! Note [Live]. Nothing is written before a request, so no call of the program costs more and an
//! idle program is not woken. A reader rings a futex in the file, on which the writer's thread
//! sleeps anyway. That thread reads the numbers under the locks that make them consistent, as for a
//! snapshot. The rejected alternatives: counters in shared memory (free, but a reader cannot get
//! several that agree, and a forked child would count in them); reading the heap by
//! `process_vm_readv` (forbidden between unrelated processes on most systems, and in containers); a
//! socket (a descriptor that programs close along with all others, and whose number then means
//! another file).
//!
//! If another process truncates the file, touching the mapping raises SIGBUS. So the library's code
//! does not touch it: the mapping is an address for the kernel's futex calls, which return EFAULT,
//! and all other accesses are `pread` and `pwrite`. If the file is not as expected, the library
//! stops using it.
//!
//! The file is removed when the process ends, unless a signal kills it. In that case the next
//! process of the user finds that the owner is gone, and removes it. A forked child inherits the
//! mapping and does not use it.

use core::ops::Deref;
use core::ptr::{null, null_mut};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use cachealloc_foreign::shared_memory::FOLDER;
use cachealloc_foreign::{Way, open_where, shared_memory};
use cachealloc_history::file::{OwnFile, above_standard};
use cachealloc_statistics::control::{ControlCommand, GpuId};
use cachealloc_statistics::page::{
    ANSWERED_OFFSET, BEGUN_OFFSET, DONE_OFFSET, DOORBELL_OFFSET, GRANTS_OFFSET, HEAD_BYTES, Head,
    NAME_BEGIN, OFFERED_OFFSET, Offer, Owner, RESULT_OFFSET, SEQUENCE_OFFSET, TEXT_BYTES_OFFSET,
    WAITERS_OFFSET, Waiter, Waiters,
};

use crate::clock::now_ns;
use crate::identity::Fate;
use crate::process::library_thread;
use crate::seccomp::AtCalls;
use crate::thread_state::with_thread_state_saved;
use crate::{config, identity, log, seccomp};

/// Maximum number of files of other processes that are checked when the file is created.
const OTHERS_MAX: usize = 1000;

/// The mapping, or null. Only the kernel accesses it.
static PAGE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// Name of the file, for the end of the process.
static PATH: OnceLock<CString> = OnceLock::new();
/// Whether the process is ending and leaves no file.
static ENDED: AtomicBool = AtomicBool::new(false);

static LIVE: OnceLock<Live> = OnceLock::new();

/// The file. Only the writer's thread writes it, and it allocates only on request.
pub(crate) struct Live {
    path: PathBuf,
    inode: u64,
    owner: Owner,
    /// Number of answered requests for call sites.
    sites_answered: AtomicU32,
}

/// The file while it is open. It is closed before a seccomp filter may be installed.
struct OpenFile {
    file: OwnFile,
    _at_calls: AtCalls,
}

impl Deref for OpenFile {
    type Target = OwnFile;

    fn deref(&self) -> &OwnFile {
        &self.file
    }
}

/// Requests of other processes that are open when the writer looks for work.
pub(crate) struct OpenRequests {
    doorbell: u32,
    /// Number of the open request.
    asked: Option<u32>,
    site_requests: u32,
    /// Number of the open control command.
    ordered: Option<u32>,
}

/// State of the file when the writer looks.
pub(crate) enum Look {
    Open(OpenRequests),
    /// The process has no free descriptor for the file now.
    Later,
    /// The file is not as expected and is no longer used.
    Gone,
}

/// Services for other processes.
pub(crate) struct Service {
    /// Returns the statistics as JSON, with call sites or without.
    pub report: fn(bool) -> String,
    /// Executes a control command. Returns 0 or an `errno`.
    pub execute: fn(Option<ControlCommand>) -> u32,
    /// Returns how much of a GPU's memory could be released.
    pub offer: fn(GpuId) -> Offer,
}

static SERVICE: OnceLock<Service> = OnceLock::new();

/// Sets the service. Must be called before `begin`.
pub(crate) fn serve(service: Service) {
    let _ = SERVICE.set(service);
}

impl Live {
    /// Reads the open requests.
    pub(crate) fn look(&self) -> Look {
        const NO_DESCRIPTOR: [Option<i32>; 2] = [Some(libc::EMFILE), Some(libc::ENFILE)];
        let head = match self.open().and_then(|file| read_head(file.still()?)) {
            Err(error) if NO_DESCRIPTOR.contains(&error.raw_os_error()) => return Look::Later,
            head => head.ok().flatten().filter(|head| head.owner == self.owner),
        };
        let Some(head) = head else {
            PAGE.store(null_mut(), Ordering::SeqCst);
            return Look::Gone;
        };
        let asked = (head.requests != head.answered).then_some(head.requests);
        let ordered = (head.commands != head.done).then_some(head.commands);
        let Head { doorbell, site_requests, .. } = head;
        Look::Open(OpenRequests { doorbell, asked, site_requests, ordered })
    }

    /// Executes the open control command, if any.
    pub(crate) fn execute(&self, look: &OpenRequests) {
        let (Some(number), Some(service)) = (look.ordered, SERVICE.get()) else { return };
        let obeyed = self.open().and_then(|file| {
            let word = |offset: usize, value: u32| write(&file, &value.to_ne_bytes(), offset);
            word(BEGUN_OFFSET, number)?;
            let head = read_head(file.still()?)?.ok_or(io::ErrorKind::InvalidData)?;
            let command = ControlCommand::from_bytes(&head.command);
            if let Some(ControlCommand::Offer { gpu }) = command {
                let offer = (service.offer)(gpu);
                write(&file, &offer.to_bytes(), OFFERED_OFFSET)?;
            }
            word(RESULT_OFFSET, (service.execute)(command))?;
            word(DONE_OFFSET, number)
        });
        match obeyed {
            Ok(()) => wake(DONE_OFFSET),
            Err(error) => log::info(format_args!("cannot execute a control command: {error}")),
        }
    }

    /// Writes the statistics, if requested.
    pub(crate) fn answer(&self, look: &OpenRequests) {
        let Some(asked) = look.asked else { return };
        let Some(service) = SERVICE.get() else { return };
        let sites = self.sites_answered.swap(look.site_requests, Ordering::Relaxed);
        let text = (service.report)(sites != look.site_requests);
        let written = self.open().and_then(|file| write_answer(&file, asked, &text));
        match written {
            Ok(()) => wake(ANSWERED_OFFSET),
            Err(error) => log::info(format_args!("cannot write live statistics: {error}")),
        }
    }

    fn make() -> io::Result<Live> {
        let owner = identity::own()?;
        let name = shared_memory::name(NAME_BEGIN, identity::user(), &owner);
        // Left by this process before an `exec`, or by an earlier one with the same number.
        let _ = fs::remove_file(Path::new(FOLDER).join(&name));
        let (path, file) = shared_memory::create(&name, 0o600)?;
        let _ = PATH.set(CString::new(path.as_os_str().as_bytes()).unwrap_or_default());
        // In this order: a process that finds a head not mapped by its owner takes it for a
        // leftover.
        let mapped = map(&file)
            .and_then(|page| file.write_all_at(&Head::new(owner).to_bytes(), 0).map(|()| page));
        if mapped.is_err() || ENDED.load(Ordering::SeqCst) {
            remove_own();
        }
        PAGE.store(mapped?, Ordering::SeqCst);
        Ok(Live { path, inode: file.metadata()?.ino(), owner, sites_answered: AtomicU32::new(0) })
    }

    /// Opens the file, unless a seccomp filter could kill the process for it: then the library
    /// stops using the file.
    fn open(&self) -> io::Result<OpenFile> {
        let at_calls = seccomp::at_calls();
        let at_calls = at_calls.ok_or("a seccomp filter may forbid it");
        let at_calls = at_calls.map_err(io::Error::other)?;
        let file = open_where(&self.path, Way::WriteUnlinked, |about| about.ino() == self.inode)?;
        let file = OwnFile::new(above_standard(file.into_file())?)?;
        let same = file.still()?.metadata()?.ino() == self.inode;
        match same {
            true => Ok(OpenFile { file, _at_calls: at_calls }),
            false => Err(io::Error::other("the file was replaced")),
        }
    }
}

/// Creates the file if the options ask for it. A failure must not affect the program. Runs in a
/// thread of the program: allocations of a library thread would cost the process another heap
/// arena.
pub(crate) fn begin() {
    if !config::get().live || seccomp::is_new() {
        return;
    }
    with_thread_state_saved(|| {
        remove_orphans();
        match Live::make() {
            Ok(live) => _ = LIVE.set(live),
            Err(error) => log::info(format_args!("cannot create live statistics: {error}")),
        }
    });
}

/// Returns the file, if it was created.
pub(crate) fn get() -> Option<&'static Live> {
    LIVE.get()
}

/// Sleeps until a ring, at most this long. Returns `false` if the file is gone and no ring can
/// come.
pub(crate) fn wait_for_request(look: &OpenRequests, no_longer: Option<Duration>) -> bool {
    let page = PAGE.load(Ordering::SeqCst);
    if page.is_null() {
        return false;
    }
    let doorbell = page.wrapping_add(DOORBELL_OFFSET);
    let time = no_longer.map(library_thread::timespec);
    let time = time.as_ref().map_or(null(), core::ptr::from_ref);
    // SAFETY: the kernel compares the word and sleeps, or returns an error if it cannot read it.
    let code =
        unsafe { libc::syscall(libc::SYS_futex, doorbell, libc::FUTEX_WAIT, look.doorbell, time) };
    let fault = code == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT);
    if fault {
        PAGE.store(null_mut(), Ordering::SeqCst);
    }
    !fault
}

/// Wakes the writer's thread. Safe in signal handlers.
pub(crate) fn wake_writer() {
    let page = PAGE.load(Ordering::SeqCst);
    if page.is_null() || !identity::is_ours() {
        return;
    }
    let doorbell = page.wrapping_add(DOORBELL_OFFSET);
    if !add_1(doorbell)
        && let Some(path) = PATH.get()
    {
        // SAFETY: a C string. The file was truncated, and the writer sleeps on a word past its end.
        unsafe { libc::truncate(path.as_ptr(), HEAD_BYTES as i64) };
        add_1(doorbell);
    }
}

/// Publishes which requests of this process wait for memory. After a failure, other processes do
/// not let them go first.
pub(crate) fn wait(waiters: &Waiters) {
    if let Some(file) = get().and_then(|live| live.open().ok()) {
        let bytes: Vec<u8> = waiters.iter().flat_map(Waiter::to_bytes).collect();
        let _ = write(&file, &bytes, WAITERS_OFFSET);
    }
}

/// Notifies another process that it got what it asked for, as far as there was any.
pub(crate) fn gave() {
    let page = PAGE.load(Ordering::SeqCst);
    if !page.is_null() {
        add_1(page.wrapping_add(GRANTS_OFFSET));
    }
}

/// Adds 1 to a word of a mapped head and wakes all that sleep on it. Returns `false` if the kernel
/// cannot do that because the file was truncated.
pub(crate) fn add_1(word: *mut u8) -> bool {
    /// Operation on the second word, which is the same one. No waiter is woken for that.
    const ADD_1: u32 = 1 << 28 | 1 << 12;
    let all = i32::MAX;
    // SAFETY: the kernel changes the word, or returns an error.
    let code =
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE_OP, all, 0, word, ADD_1) };
    code != -1
}

fn wake(offset: usize) {
    let word = PAGE.load(Ordering::SeqCst).wrapping_add(offset);
    // SAFETY: wakes threads that sleep on a word.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
}

/// Removes the file when the process ends. Safe in signal handlers. If the process has since
/// installed a seccomp filter, removing a file may be forbidden and fatal: the next process removes
/// it.
pub(crate) fn end() {
    if identity::is_ours() && !ENDED.swap(true, Ordering::SeqCst) && !seccomp::is_new() {
        remove_own();
    }
}

/// Whether the file is gone or about to be removed.
pub(crate) fn has_ended() -> bool {
    ENDED.load(Ordering::SeqCst)
}

fn remove_own() {
    if let Some(path) = PATH.get() {
        // SAFETY: a C string.
        unsafe { libc::unlink(path.as_ptr()) };
    }
}

/// Maps the head of a file, for the kernel only.
pub(crate) fn map(file: &File) -> io::Result<*mut u8> {
    use std::os::fd::AsRawFd;
    // SAFETY: a new mapping at an address of the kernel's choice; no code of the library accesses
    // it.
    let mapped = unsafe {
        libc::mmap(
            null_mut(),
            HEAD_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping that was just made. Children do not get it, because the process that maps
    // it counts as its owner (`foreign::process`).
    unsafe { libc::madvise(mapped, HEAD_BYTES, libc::MADV_DONTFORK) };
    Ok(mapped.cast())
}

/// Writes an answer. A reader that sees the same even number before and after has one consistent
/// answer.
fn write_answer(file: &OwnFile, asked: u32, text: &str) -> io::Result<()> {
    let head = read_head(file.still()?)?.ok_or(io::ErrorKind::InvalidData)?;
    let word = |offset: usize, value: u32| write(file, &value.to_ne_bytes(), offset);
    let odd = head.sequence | 1;
    word(SEQUENCE_OFFSET, odd)?;
    write(file, text.as_bytes(), HEAD_BYTES)?;
    let sizes = [text.len() as u64, now_ns()].map(u64::to_ne_bytes).concat();
    write(file, &sizes, TEXT_BYTES_OFFSET)?;
    word(SEQUENCE_OFFSET, odd.wrapping_add(1))?;
    word(ANSWERED_OFFSET, asked)
}

fn write(file: &OwnFile, bytes: &[u8], offset: usize) -> io::Result<()> {
    file.still()?.write_all_at(bytes, offset as u64)
}

fn read_head(file: &File) -> io::Result<Option<Head>> {
    let mut bytes = [0; HEAD_BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(Head::from_bytes(&bytes))
}

/// Returns the owner of a file, and its inode. If the owner was killed before it wrote anything,
/// only the file's name identifies it.
fn owner_at(path: &Path) -> Option<(Owner, u64)> {
    let file = open_where(path, Way::ReadUnlinked, |_| true).ok()?;
    let about = file.still().ok()?.metadata().ok()?;
    let owner = match about.len() {
        0 => shared_memory::owner_of_name(NAME_BEGIN, path.file_name()?.to_str()?)?,
        _ => read_head(file.still().ok()?).ok()??.owner,
    };
    Some((owner, about.ino()))
}

/// Removes the files of this user's processes that were killed, or that run another program now.
/// Processes of other namespaces cannot be checked.
fn remove_orphans() {
    let Some(own) = identity::own_to_judge() else { return };
    for path in shared_memory::files_of(identity::user(), NAME_BEGIN).take(OTHERS_MAX) {
        let Some((owner, inode)) = owner_at(&path) else { continue };
        let fate = identity::fate_of(&path, inode, &owner, Some(&own));
        if matches!(fate, Fate::Gone | Fate::OtherProgram) {
            let _ = fs::remove_file(path);
        }
    }
}
