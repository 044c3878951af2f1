//! Memory nodes of graphs in snapshots, and how the commands show them.

use std::process::Command;

use cachealloc_tests::{Run, lacks};

use crate::command::cachealloc;
use crate::record::snapshots::Place;

/// The commands list memory nodes of graphs that can be launched, each with its graph and with the
/// call that added it.
#[test]
fn memory_nodes_of_graphs_are_shown() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let run = || Run::c("graph_nodes.c").folder(&place.path);
    place.run(&run().conf("record:all,log:quiet,snapshot:a.pickle")).ok();
    place.sound(1..=1, &["--opcodes", "--from-start"]);
    let script = "
import pickle, sys
s = pickle.load(open(sys.argv[1], 'rb'))
for g in sorted(s['graph_segments'], key=lambda g: g['segment_pool_id']):
    names = [f['name'] for f in g['frames']]
    print(g['total_size'] >> 20, g['segment_pool_id'], g['device'], g['blocks'][0].get('category'), *names[:1])
    assert not any(t['addr'] == g['address'] for t in s['device_traces'][0] if 'addr' in t)";
    let mut python = Command::new("python3");
    python.args(["-c", script, "a.pickle"]).current_dir(&place.path);
    let python = python.output().expect("python3 runs");
    let wanted = "16 (1, 0) 0 app capture\n8 (2, 0) 0 app by_hand\n4 (3, 0) 0 app of_any_kind\n";
    let problem = String::from_utf8_lossy(&python.stderr);
    assert_eq!(String::from_utf8_lossy(&python.stdout), wanted, "{problem}");
    let said = |words: &str| place.run(&cachealloc(words)).ok().stdout;
    let sites = said("top-sites a.pickle --device graphs --at end");
    for line in
        ["graphs: 28.0 MiB, without history", "16.0 MiB", "of_any_kind command/graph_nodes.c:"]
    {
        assert!(sites.contains(line), "{line}\n{sites}");
    }
    let sites = said("top-sites a.pickle");
    let note = "graphs: memory nodes of 28.0 MiB, which may share memory; list their origin with --device graphs";
    assert!(sites.contains(note), "{sites}");
    let account = said("explain a.pickle");
    let row = account.lines().find(|line| line.contains("not added: memory nodes of graphs"));
    let words = row.map(|row| row.split_whitespace().take(4).collect::<Vec<_>>().join(" "));
    assert_eq!(words.as_deref(), Some("28.0 MiB counted app"), "{account}");
    // Without a recording the nodes are listed, without the unknown details.
    place.run(&run().arg("raise").conf("log:quiet,snapshot:b.pickle")).ok();
    let sites = said("top-sites b.pickle --device graphs --at end");
    assert!(sites.contains("graphs: 28.0 MiB") && !sites.contains("graph_nodes.c"), "{sites}");
}

/// A restarted recording knows no earlier call, whether or not its graph could be launched then.
#[test]
fn restarted_recording_forgets_who_added_nodes() {
    let place = Place::new();
    let run = Run::c("graph_nodes.c").folder(&place.path).arg("anew");
    place.run(&run.conf("record:all,log:quiet,snapshot:c.pickle")).ok();
    let sites = place.run(&cachealloc("top-sites c.pickle --device graphs --at end")).ok().stdout;
    let names = ["graphs: 28.0 MiB", "of_any_kind", "by_hand", "capture"];
    assert_eq!(names.map(|name| sites.contains(name)), [true, true, false, false], "{sites}");
}
