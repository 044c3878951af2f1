//! Valid files to start from: by the library's writer, and by hand in the ways that PyTorch's files
//! differ.

use std::sync::LazyLock;

use cachealloc_history as history;

use crate::pickle::Pickle;

/// The generator of random valid histories, shared with the tests of the writer.
#[allow(dead_code)]
#[path = "../../src/history/tests/history/random.rs"]
pub mod random;

pub static FILES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let ours = (3..7).map(|seed| {
        let mut file = Vec::new();
        let snapshot = random::snapshot(seed, 20 + 5 * seed);
        let described = &mut random::Described::default();
        history::write_snapshot(&snapshot, described, &mut file).expect("memory takes it");
        file
    });
    ours.chain([pytorchs()]).collect()
});

fn pytorchs() -> Vec<u8> {
    let mut pickle = Pickle::new();
    pickle.text("main");
    let name = pickle.keep_only();
    pickle.text("/home/user/train.py");
    let file = pickle.keep_only();
    let keys = pickle.keys();
    pickle.raw(b"](").frame(name, file, 7).frame(name, file, 9).raw(b"e");
    let stack = pickle.keep_only();
    pickle.snapshot(
        |pickle| {
            for number in 0..40 {
                pickle.entry(&keys, number % 7, |pickle| {
                    pickle.again(keys.frames).again(stack).again(keys.metadata).raw(b"}(");
                    pickle.text("step").number(number).raw(b"u");
                });
            }
        },
        |pickle| {
            pickle.text("external_annotations").raw(b"](}(").text("name").text("step");
            pickle.text("stage").text("START").text("device").number(0).raw(b"ue");
            pickle.text("host_traces").raw(b"](");
            pickle.entry(&keys, 1, |_| {}).raw(b"e");
            pickle.text("host_segments").raw(b"](}(").text("device").raw(b"J\xff\xff\xff\xff");
            pickle
                .text("blocks")
                .raw(b"](}(")
                .text("size")
                .number(9)
                .text("state")
                .text("inactive");
            pickle.raw(b"ue").text("total_size").number(9).raw(b"ue");
            pickle
                .text("allocator_settings")
                .raw(b"}(")
                .text("max_split_size")
                .raw(b"J\xff\xff\xff\xffu");
        },
    )
}
