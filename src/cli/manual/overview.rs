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
        "The settings, as key:value,key:value; see OPTIONS. What is wrong in it is said in a line on stderr, \
         and the default is used; of free_mode, strict.",
    ),
    ("CACHEALLOC", "0: the library does nothing."),
    ("CACHEALLOC_LIB", "The library, or its folder, for the commands run and doctor."),
    (
        "LD_PRELOAD",
        "What the loader puts in front of every other library. cachealloc run sets it; by hand it wants the \
         library's absolute path.",
    ),
    (
        "RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, MV2_COMM_WORLD_RANK, SLURM_PROCID",
        "The first that holds a number is the rank in names of files (%r).",
    ),
    (
        "NVTX_INJECTION64_PATH",
        "The tool that hears of NVTX ranges. run sets it to the library if something is recorded from the begin and \
         no profiler is named there.",
    ),
    ("NO_COLOR", "Not empty: help is printed without colours."),
];

const FILES: [(&str, &str); 5] = [
    (
        "/dev/shm/cachealloc-<uid>-<namespace>-<pid>",
        "By it other processes of the user read the statistics of a running program, and give it orders. It \
         goes with the process. live:false: none.",
    ),
    (
        "/dev/shm",
        "What is recorded lies there as well, so that it outlives a kill; cachealloc recover makes a snapshot \
         of it.",
    ),
    (
        "cachealloc-<host>-<rank>-<pid>-<number>.pickle",
        "A snapshot, in the program's folder; the option snapshot names another place.",
    ),
    (".<name>.*.part", "A file that is being written. It gets its name when it is complete."),
    ("libcachealloc.so", "The library; beside the command, or in lib beside its folder."),
];

pub(super) fn page() -> Page {
    let mut page = Roff::new(NAME, 7);
    page.section("NAME");
    page.name_line(NAME, "a preloaded allocator for the GPU memory of CUDA programs");
    page.section("DESCRIPTION");
    page.paragraph(
        "Preloaded into an unmodified CUDA program, libcachealloc.so serves its allocations of GPU memory from a \
         cache, and knows all of its GPU memory: statistics, history, snapshots. Nothing is done in a process \
         that starts no CUDA.",
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
    page.paragraph("Of every command:");
    for (code, meaning) in [
        (0, "It was done."),
        (FAILED, "It was not, and a line on stderr says why."),
        (USAGE, "The command line is wrong, or asks for what cannot be."),
        (NOT_KEPT, "Of run: --max-peak or --max-leak was not kept to."),
        (
            NOT_THE_PROGRAM,
            "Of run: the library is not there, or cannot be loaded into the program.",
        ),
        (NOT_EXECUTABLE, "Of run: the program cannot be executed."),
        (NOT_FOUND, "Of run: there is no such program."),
    ] {
        page.item(&code.to_string(), meaning);
    }
    page.paragraph(
        "Otherwise run ends as the program did. The library changes no program's exit status.",
    );
    page.section("ENVIRONMENT");
    ENVIRONMENT.iter().for_each(|(term, text)| page.item(term, text));
    page.section("FILES");
    FILES.iter().for_each(|(term, text)| page.item(term, text));
    page.section("SIGNALS");
    page.item(
        "SIGUSR1",
        "Has the program write a snapshot (option signal). A handler of the program's own runs as well.",
    );
    page.section("SEE ALSO");
    page.paragraph("cachealloc(1), cachealloc-run(1), ld.so(8)");
    Page { name: NAME.to_string(), section: 7, text: page.finish() }
}
