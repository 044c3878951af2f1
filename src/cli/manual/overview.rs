//! The page cachealloc(7): what all commands and the library share: environment, files, signals and
//! exit codes.

use cachealloc_options::OPTIONS;

use super::page::Page;
use super::roff::Roff;
use crate::failure::{FAILED, NOT_THE_PROGRAM, USAGE};
use crate::launch::limits::NOT_KEPT;
use crate::launch::program::{NOT_EXECUTABLE, NOT_FOUND};

const NAME: &str = "cachealloc";

const ENVIRONMENT: [(&str, &str); 7] = [
    (
        "CACHEALLOC_CONF",
        "The settings, as key:value,key:value; see OPTIONS. Invalid values are reported on stderr and \
         replaced by the default; an invalid free_mode becomes strict.",
    ),
    ("CACHEALLOC", "0 disables the library."),
    ("CACHEALLOC_LIB", "The library or its folder, for the commands run and doctor."),
    (
        "LD_PRELOAD",
        "Libraries that the loader loads first. cachealloc run sets it; set by hand, it needs the \
         absolute path of the library.",
    ),
    (
        "RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, MV2_COMM_WORLD_RANK, SLURM_PROCID",
        "The first of them that is a number is the rank in file names (%r).",
    ),
    (
        "NVTX_INJECTION64_PATH",
        "The tool that receives NVTX ranges. run sets it to the library if it records from the start and \
         no profiler is set.",
    ),
    ("NO_COLOR", "If not empty, output has no colors."),
];

const FILES: [(&str, &str); 5] = [
    (
        "/dev/shm/cachealloc-<uid>-<namespace>-<pid>",
        "The statistics and control commands of a running program, for other processes of its user. It is \
         removed with the process, and missing under live:false.",
    ),
    (
        "/dev/shm",
        "Also holds the recorded history, so that it survives a kill; cachealloc recover writes a snapshot \
         from it.",
    ),
    (
        "cachealloc-<host>-<rank>-<pid>-<number>.pickle",
        "A snapshot, in the working folder of the program; the option snapshot chooses another place.",
    ),
    (
        ".<name>.*.part",
        "A file that is being written where files need a name, renamed when it is complete.",
    ),
    ("libcachealloc.so", "The library, next to the command or in ../lib."),
];

pub(super) fn page() -> Page {
    let mut page = Roff::new(NAME, 7);
    page.section("NAME");
    page.name_line(NAME, "a preloaded allocator for the GPU memory of CUDA programs");
    page.section("DESCRIPTION");
    page.paragraph(
        "Preloaded into an unmodified CUDA program, libcachealloc.so serves its allocations of GPU memory from a \
         cache and tracks all of its GPU memory: statistics, history, snapshots. It does nothing in a \
         process that does not use CUDA.",
    );
    page.lines(
        "cachealloc run -- ./app args\n\
         LD_PRELOAD=/path/libcachealloc.so ./app args",
    );
    page.section("OPTIONS");
    page.paragraph("Keys of CACHEALLOC_CONF. `cachealloc options WORD` searches them.");
    for row in OPTIONS.iter().filter(|row| !row.meaning.is_empty()) {
        let (key, allowed, default) = (row.key, row.kind.allowed(), row.default);
        page.item(key, &format!("{}. Allowed: {allowed}; default: {default}.", row.meaning));
    }
    page.section("EXIT STATUS");
    page.paragraph("For every command:");
    for (code, meaning) in [
        (0, "Success."),
        (FAILED, "Failure; a line on stderr states the reason."),
        (USAGE, "Invalid usage."),
        (NOT_KEPT, "run: the program exceeded --max-peak or --max-leak."),
        (NOT_THE_PROGRAM, "run: the library was not found, or cannot be loaded into the program."),
        (NOT_EXECUTABLE, "run: the program cannot be executed."),
        (NOT_FOUND, "run: the program was not found."),
    ] {
        page.item(&code.to_string(), meaning);
    }
    page.paragraph(
        "Otherwise, run exits with the status of the program. The library never changes it.",
    );
    page.section("ENVIRONMENT");
    ENVIRONMENT.iter().for_each(|(term, text)| page.item(term, text));
    page.section("FILES");
    FILES.iter().for_each(|(term, text)| page.item(term, text));
    page.section("SIGNALS");
    page.item(
        "SIGUSR1",
        "Makes the program write a snapshot (option signal). A handler of the program also runs.",
    );
    page.section("SEE ALSO");
    page.paragraph("cachealloc(1), cachealloc-run(1), ld.so(8)");
    Page { name: NAME.to_string(), section: 7, text: page.finish() }
}
