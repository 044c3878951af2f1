//! `cachealloc find` leads from an address to its block, now or in its last life, and to the
//! adjacent blocks.

use serde_json::Value;

use super::sites::{line_of, planted, run, said};
use crate::command::cachealloc;
use crate::command::live::busy;
use crate::record::snapshots::Place;

fn json(place: &Place, arguments: &str) -> Value {
    serde_json::from_str(&said(place, arguments)).expect("it is JSON")
}

/// Returns the entries of the only device that allocate this many bytes.
fn allocations(place: &Place, bytes: u64) -> Vec<u64> {
    let model = json(place, "convert 5.pickle --to json -o -");
    let entries = model["devices"][0]["entries"].as_array().expect("a list");
    let are = entries.iter().filter(|it| it["action"] == "alloc" && it["bytes"] == bytes);
    are.map(|it| it["address"].as_u64().expect("a number")).collect()
}

#[test]
fn a_block_that_is_held() {
    let place = planted();
    let leaks = allocations(&place, 3 << 20);
    let address = leaks[1];
    let text = said(&place, &format!("find {:#x} 5.pickle", address + 4096));
    let place_of = |comment, function| format!("{function} record/planted.c:{}", line_of(comment));
    for wanted in [
        format!(
            "{:#x}: in block b{address:x}_0, 4,096 bytes (4.00 KiB) after its first byte\n",
            address + 4096
        ),
        "device 0, at the end\n".into(),
        format!(
            "block      b{address:x}_0, 3,145,728 bytes (3.00 MiB) requested, stream 0x0, app\n"
        ),
        format!("{}\n", place_of("asks", "get")),
        format!("{}\n", place_of("leak", "leak")),
        "\nsegment    ".into(),
        "\nreserved   after ".into(),
        "held, here".into(),
    ] {
        assert!(text.contains(&wanted), "{wanted}\n{text}");
    }
    // PyTorch's name, a number without 0x, and JSON give the same answer.
    let named = said(&place, &format!("find b{address:x}_0 5.pickle --at end"));
    let told = json(&place, &format!("find {address:x} 5.pickle --json"));
    let block = &told["found"][0]["block"];
    assert!(named.contains("at its first byte"), "{named}");
    assert_eq!(block["name"], format!("b{address:x}_0"), "{told}");
    assert_eq!(block["requested_bytes"], 3 << 20, "{told}");
    assert_eq!(
        (&told["found"][0]["place"], &told["found"][0]["offset_bytes"]),
        (&"block".into(), &0.into())
    );
    assert!(block["freed"].is_null() && block["allocated"]["stack"].is_array(), "{told}");
    // The adjacent blocks are other leaks, or free.
    let beside = told["found"][0]["beside"].as_array().expect("a list");
    assert!(
        beside.iter().filter(|it| it["here"] == true).count() == 1 && beside.len() > 1,
        "{told}"
    );
}

/// Shows the last life of free memory, and earlier ones by their names.
#[test]
fn a_block_that_was_freed() {
    let place = planted();
    let temporary = allocations(&place, 64 << 10);
    let address = temporary[0];
    assert!(temporary.iter().all(|it| *it == address), "the cache uses one block again and again");
    let told = json(&place, &format!("find {address:#x} 5.pickle --json"));
    let found = &told["found"][0];
    assert_eq!(found["place"], "free", "{told}");
    assert_eq!(found["block"]["name"], format!("b{address:x}_99"), "{told}");
    assert_eq!(found["earlier_blocks"], 99, "{told}");
    let freed = found["block"]["freed"]["stack"].to_string();
    assert!(freed.contains("burst"), "{told}");
    let text = said(&place, &format!("find {address:#x} 5.pickle"));
    assert!(text.contains(&format!("in free memory, last in block b{address:x}_99\n")), "{text}");
    assert!(
        text.contains("\nfreed      after ")
            && text.contains("\nbefore     99 blocks contained the address\n"),
        "{text}"
    );
    let text = said(&place, &format!("find b{address:x}_7 5.pickle"));
    assert!(
        text.contains(&format!(
            "in block b{address:x}_7, at its first byte\ndevice 0, after entry "
        )),
        "{text}"
    );
    assert!(!text.contains("\nfreed "), "{text}");
}

#[test]
fn address_without_a_block() {
    let place = planted();
    let ran = run(&place, "find 0x10 5.pickle");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.starts_with("0x10: in no segment\n"), "{ran:?}");
    assert!(ran.stdout.contains(" before the start of "), "{ran:?}");
    let ran = run(&place, "find main 5.pickle");
    assert!(
        ran.code == Some(2) && ran.stderr.contains("expected a hexadecimal address"),
        "{ran:?}"
    );
    let ran = run(&place, "find b10_3 5.pickle");
    assert!(
        ran.code == Some(1) && ran.stderr.contains("no memory is known at 0x10 in 5.pickle"),
        "{ran:?}"
    );
}

/// The command writes a snapshot and looks the address up in it.
#[test]
fn of_a_running_program() {
    let place = Place::new();
    let path = place.path.join("s.pickle");
    let running = busy(&format!("record:all,log:quiet,snapshot:{}", path.display()));
    let process = running.child.id();
    let ran = cachealloc(&format!("find 10 {process}")).output();
    let wanted = format!("snapshot {}\n\n0x10: in no segment\n", path.display());
    assert!(ran.stdout.starts_with(&wanted), "{ran:?}");
    assert_eq!(running.end(), Some(0));
}
