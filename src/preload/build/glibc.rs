//! Links the library against the C library of 2012 (glibc 2.17), whatever version this machine has.
//!
//! A linker binds each reference to the newest version of a symbol that it finds: on Debian 12 the
//! result would not load on any system before glibc 2.34, only because `dlopen` moved to another
//! file there. So the linker gets stand-ins with the old versions only. They contain names, no
//! code, and are not needed afterwards.
//!
//! A symbol not listed below has no version and binds to what the system has, or to null if the
//! reference is weak: std looks for `getrandom`, `gettid` and `statx` in that way and works without
//! them. A test requires every other reference to be listed, and the loader refuses a version that
//! does not exist, so an error in the list is noticed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// A file of the C library, and the symbols of it that the library may use, by version. The
/// versions are those of x86-64, where a symbol's first is 2.2.5 or later; on aarch64 the first is
/// 2.17. A symbol of the version `""` binds to any existing version, or to none; `=environ` is
/// data.
pub struct Library<'a> {
    pub soname: &'a str,
    pub versions: &'a [(&'a str, &'a str)],
}

const LIBRARIES: [Library; 3] = [
    Library {
        soname: "libc.so.6",
        versions: &[
            (
                "GLIBC_2.2.5",
                "=environ __cxa_atexit __cxa_finalize __errno_location _exit abort bcmp calloc close \
                 closedir dirfd dl_iterate_phdr dup dup2 execvp exit fcntl fileno flock fork free fsync ftruncate64 \
                 getcwd getenv geteuid gethostname getpid getppid getrlimit gettimeofday gnu_get_libc_version ioctl isatty kill \
                 lseek64 madvise malloc memchr memcmp memmove memrchr memset mkdir mmap mmap64 \
                 mprotect mremap msync munlock munmap nanosleep open open64 opendir pipe poll \
                 posix_memalign prctl pread64 pthread_attr_destroy pthread_attr_init pthread_attr_setinheritsched \
                 pthread_attr_setschedparam pthread_attr_setschedpolicy pthread_self \
                 pwrite64 read readdir64 readlink realloc rename sched_yield setenv sigaction \
                 sigaddset sigaltstack sigemptyset sigfillset sigismember signal sigpending statfs \
                 strchr strcmp strdup strerror \
                 strlen strncmp strstr syscall sysconf truncate uname unlink write writev",
            ),
            ("GLIBC_2.3", "realpath"),
            ("GLIBC_2.3.2", "__register_atfork"),
            ("GLIBC_2.3.4", "__xpg_strerror_r sched_getaffinity"),
            ("GLIBC_2.4", "linkat"),
            ("GLIBC_2.7", "eventfd"),
            ("GLIBC_2.9", "pipe2"),
            ("GLIBC_2.10", "__cxa_at_quick_exit"),
            ("GLIBC_2.14", "memcpy"),
            ("GLIBC_2.15", "process_vm_readv"),
            ("GLIBC_2.16", "__getauxval getauxval"),
            ("GLIBC_2.17", "clock_getres clock_gettime clock_nanosleep secure_getenv"),
        ],
    },
    Library {
        soname: "libdl.so.2",
        versions: &[
            ("GLIBC_2.2.5", "dladdr dlclose dlerror dlopen dlvsym"),
            ("GLIBC_2.3.3", "dladdr1 dlinfo"),
        ],
    },
    Library {
        soname: "libpthread.so.0",
        versions: &[
            (
                "GLIBC_2.2.5",
                "pthread_attr_getguardsize pthread_attr_getstack pthread_attr_setdetachstate \
                 pthread_attr_setstacksize \
                 pthread_create pthread_detach pthread_getattr_np pthread_getspecific pthread_join \
                 pthread_key_create pthread_key_delete pthread_kill pthread_once \
                 pthread_setcancelstate pthread_setspecific pthread_sigmask sem_destroy sem_init sem_post sem_wait",
            ),
            ("GLIBC_2.3.4", "pthread_attr_setaffinity_np"),
            ("GLIBC_2.12", "pthread_setname_np"),
        ],
    },
];

/// Writes the stand-ins under `out` and makes the linker find them first. If that is impossible,
/// the library is linked against this machine's C library, with a warning.
pub fn link_against_old(out: &Path) {
    if env::var("CARGO_CFG_TARGET_ENV").as_deref() != Ok("gnu") {
        return;
    }
    let folder = out.join("glibc");
    match write_all(&folder) {
        Ok(()) => println!("cargo:rustc-cdylib-link-arg=-L{}", folder.display()),
        Err(problem) => {
            println!("cargo:warning=linked against the C library of this machine: {problem}");
        }
    }
}

fn write_all(folder: &Path) -> Result<(), String> {
    let oldest = oldest()?;
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let mut files = String::new();
    for library in &LIBRARIES {
        write!(files, "{} ", stand_in(folder, library, oldest)?.display()).unwrap();
    }
    // `c_nonshared` contains functions that no C library exports: `atexit`, `pthread_atfork`. The
    // loader is the real one: its only symbol needed has always had the same version.
    let loader = match oldest {
        None => "ld-linux-x86-64.so.2",
        Some(_) => "ld-linux-aarch64.so.1",
    };
    let script = format!("GROUP ( AS_NEEDED ( {files}-l:{loader} ) -lc_nonshared )\n");
    fs::write(folder.join("libc.so"), script).map_err(|error| error.to_string())
}

/// Returns the first version of this architecture, if it is later than all in the lists.
pub fn oldest() -> Result<Option<&'static str>, String> {
    match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => Ok(None),
        Ok("aarch64") => Ok(Some("GLIBC_2.17")),
        _ => Err("its oldest versions are not known for this target".to_string()),
    }
}

/// Builds a shared object with the names and versions of `library`.
pub fn stand_in(folder: &Path, library: &Library, oldest: Option<&str>) -> Result<PathBuf, String> {
    let mut code = String::new();
    let mut versions: BTreeMap<&str, String> = BTreeMap::new();
    for (version, names) in library.versions {
        let list = versions.entry(oldest.unwrap_or(version)).or_default();
        for name in names.split_whitespace() {
            let name = match name.strip_prefix('=') {
                None => {
                    writeln!(code, "void {name}(void) {{}}").unwrap();
                    name
                }
                Some(name) => {
                    writeln!(code, "void *{name};").unwrap();
                    name
                }
            };
            if !version.is_empty() {
                write!(list, "{name}; ").unwrap();
            }
        }
    }
    versions.remove("");
    let map: String = versions.iter().map(|(v, list)| format!("{v} {{ {list}}};\n")).collect();
    let file = |ending| folder.join(format!("{}{ending}", library.soname));
    fs::write(file(".c"), code).map_err(|error| error.to_string())?;
    fs::write(file(".map"), map).map_err(|error| error.to_string())?;
    let linker = env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_string());
    let status = Command::new(&linker)
        .args(["-shared", "-nostdlib", "-fno-builtin", "-w", "-o"])
        .arg(file(""))
        .arg(file(".c"))
        .arg(format!("-Wl,-soname,{}", library.soname))
        .arg(format!("-Wl,--version-script,{}", file(".map").display()))
        .status();
    match status {
        Ok(status) if status.success() => Ok(file("")),
        Ok(status) => Err(format!("{linker}: {status}")),
        Err(error) => Err(format!("{linker}: {error}")),
    }
}
