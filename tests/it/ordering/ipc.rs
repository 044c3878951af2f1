//! Exported memory in another process, each of the two with and without the library: the right
//! bytes or an error, never another block's bytes.

use std::fs;

use cachealloc_tests::{Run, library, scratch_file};

const SIZES: [usize; 8] = [512, 4096, 64 << 10, 1 << 20, 3 << 19, 3 << 20, 20 << 20, 64 << 20];

/// Results for one size: a block at the start of its segment, the adjacent block, and a block
/// allocated after the export.
#[derive(Debug)]
struct Said {
    bytes: usize,
    blocks: Vec<String>,
}

fn run(exporter: bool, importer: bool) -> Vec<Said> {
    let folder = scratch_file("ipc");
    fs::create_dir(&folder).expect("a scratch folder");
    let mut run = Run::program(env!("CARGO_BIN_EXE_ipc")).arg("export").env("SIM_IPC", &folder);
    run = if exporter { run } else { run.native() };
    run = if importer { run.env("IPC_PRELOAD", library()) } else { run };
    let ran = run.output().ok();
    fs::remove_dir_all(&folder).expect("our own folder");
    println!("exporter {exporter}, importer {importer}:\n{}", ran.stdout);
    let lines = ran.stdout.lines().map(|line| {
        let (bytes, blocks) = line.split_once(": ").expect("a size");
        let blocks = blocks.split(", ").map(str::to_string).collect();
        Said { bytes: bytes.parse().expect("a size"), blocks }
    });
    let said: Vec<Said> = lines.collect();
    assert!(said.iter().map(|said| said.bytes).eq(SIZES));
    said
}

/// The expected answer, with each block as a separate allocation.
fn right(bytes: usize) -> String {
    let range = format!("0+{bytes}");
    format!("right seen:true range:{range} again:0 closed:0 kept:true closed:0 late:false")
}

#[test]
fn with_the_library_on_both_sides() {
    for said in run(true, true) {
        assert_eq!(said.blocks, vec![right(said.bytes); 3]);
    }
}

#[test]
fn an_importer_without_the_library_is_refused_what_it_could_not_read() {
    for said in run(true, false) {
        let good = |block: &String| block == "refused" || block.starts_with("right seen:true");
        assert!(said.blocks.iter().all(good), "{} bytes: {:?}", said.bytes, said.blocks);
        let kept = |block: &String| block == "refused" || block.contains("kept:true");
        assert!(said.blocks.iter().all(kept), "{} bytes: {:?}", said.bytes, said.blocks);
        if said.bytes > 1 << 20 {
            assert!(said.blocks[2].starts_with("right"), "large blocks are their own segments");
        }
        if said.bytes <= 3 << 20 {
            assert!(said.blocks.contains(&"refused".to_string()), "none lies inside a segment");
        }
    }
}

#[test]
fn an_exporter_without_the_library_is_understood() {
    let natively = run(false, false);
    for (ours, native) in run(false, true).iter().zip(&natively) {
        assert_eq!(ours.blocks, native.blocks, "{} bytes", ours.bytes);
        assert!(ours.blocks.iter().all(|block| block.starts_with("right seen:true")));
    }
}
