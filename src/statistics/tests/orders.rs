//! The formats for other processes and for people: the head of the live file, and the report as
//! text.

use std::time::Duration;

use cachealloc_options::{Record, StackContext, StackKind};
use cachealloc_statistics::breakdown::NvmlReading;
use cachealloc_statistics::control::{COMMAND_BYTES, Change, ControlCommand};
use cachealloc_statistics::page::{
    HEAD_BYTES, Head, LAYOUT, Offer, Owner, WAITERS_MAX, Waiter, start_of,
};
use cachealloc_statistics::{ContextReport, Holder, Report, Timed, text};

const HEAD: Head = Head {
    owner: Owner { process_id: 1, start: 2 << 40, namespace: 3 << 40 },
    doorbell: 4,
    requests: 5,
    answered: 6,
    sequence: 7,
    text_bytes: 8 << 40,
    time_ns: 9 << 40,
    site_requests: 10,
    commands: 11,
    begun: 12,
    done: 13,
    result: 14,
    command: [15; COMMAND_BYTES],
    offered: Offer { free_mebibytes: 16, idle_mebibytes: 17 },
    grants: 18,
    waiters: [Waiter { gpu: [19; 16], since_ns: 20 << 40, looked_ns: 21 << 40 }; WAITERS_MAX],
};

#[test]
fn a_head_is_read_as_it_was_written() {
    let bytes = HEAD.to_bytes();
    assert_eq!(Head::from_bytes(&bytes), Some(HEAD));
    let numbers = |from: usize, to: usize, size: usize| -> Vec<u64> {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | *byte as u64);
        bytes[from..to].chunks(size).map(number).collect()
    };
    // Decoded by the description alone, as other programs do. The machines that run this are
    // little-endian.
    assert_eq!(&bytes[..8], b"cachLIVE");
    assert_eq!(numbers(8, 16, 4), [u64::from(LAYOUT), 1]);
    assert_eq!(numbers(16, 32, 8), [2 << 40, 3 << 40]);
    assert_eq!(numbers(32, 48, 4), [4, 5, 6, 7]);
    assert_eq!(numbers(48, 64, 8), [8 << 40, 9 << 40]);
    assert_eq!(numbers(64, 88, 4), [10, 11, 12, 13, 14, 0]);
    assert_eq!(numbers(88, 112, 1), [15; COMMAND_BYTES]);
    assert_eq!(numbers(112, 128, 4), [16, 17, 18, 0]);
    for waiter in (128..HEAD_BYTES).step_by(32) {
        assert_eq!(numbers(waiter, waiter + 16, 1), [19; 16]);
        assert_eq!(numbers(waiter + 16, waiter + 32, 8), [20 << 40, 21 << 40]);
    }
}

#[test]
fn page_of_another_kind_is_rejected() {
    for place in [0, 7, 8] {
        let mut bytes = HEAD.to_bytes();
        bytes[place] += 1;
        assert_eq!(Head::from_bytes(&bytes), None, "byte {place}");
    }
}

/// Every control command, and nothing else, whatever the bytes are.
#[test]
fn an_order_is_read_as_it_was_written() {
    let change = Change {
        record: Record::State,
        context: None,
        stacks: Some(StackKind::Native),
        max_entries: Some(7),
        device: Some(None),
        clear: true,
    };
    let off = Change {
        record: Record::Off,
        context: Some(StackContext::None),
        stacks: None,
        max_entries: None,
        device: None,
        clear: false,
    };
    for command in [
        ControlCommand::Record(change),
        ControlCommand::Record(off),
        ControlCommand::Record(Change { device: Some(Some(3)), ..off }),
        ControlCommand::Trim { device: None },
        ControlCommand::Trim { device: Some(63) },
        ControlCommand::Limit { device: Some(0), bytes: Some(1) },
        ControlCommand::Limit { device: None, bytes: None },
        ControlCommand::Measure,
        ControlCommand::Note { device: 0, nvml_reading: NvmlReading::Process(12 << 30) },
        ControlCommand::Note { device: 63, nvml_reading: NvmlReading::Others(0) },
        ControlCommand::Offer { gpu: *b"a simulated GPU." },
        ControlCommand::Give { gpu: [255; 16], mebibytes: 1 << 20 },
    ] {
        assert_eq!(ControlCommand::from_bytes(&command.to_bytes()), Some(command));
        for at in 0..COMMAND_BYTES {
            for value in 0..=255 {
                let mut bytes = command.to_bytes();
                bytes[at] = value;
                let Some(read) = ControlCommand::from_bytes(&bytes) else { continue };
                assert_eq!(
                    ControlCommand::from_bytes(&read.to_bytes()),
                    Some(read),
                    "{at} is {value}"
                );
                assert!(!matches!(read, ControlCommand::Limit { bytes: Some(0), .. }));
            }
        }
    }
    assert_eq!(ControlCommand::from_bytes(&[0; COMMAND_BYTES]), None);
}

#[test]
fn the_start_of_a_process_is_field_22() {
    let fields: Vec<String> = (3..40).map(|field| field.to_string()).collect();
    assert_eq!(start_of(&format!("12 (a ) (b) {}", fields.join(" "))), Some(22));
    assert_eq!(start_of("12 (short) S 4"), None);
}

/// Events that never happened are not listed, but driver calls are.
#[test]
fn text_lists_what_happened() {
    let timed = |name, count, nanoseconds| Timed { name, count, nanoseconds };
    let context = |id, is_alive| ContextReport {
        id,
        is_alive,
        barriers_count: 2,
        ..ContextReport::default()
    };
    let report = Report {
        version: "1.2",
        process_id: 7,
        free_mode: "ordered",
        contexts: vec![context(1, true), context(2, false)],
        steady: Some(Duration::from_millis(1500)),
        calls: vec![timed("reserve", 3, Some(1_500_000)), timed("free", 0, None)],
        waits: vec![timed("look", 5, None), timed("strict", 0, None)],
        counts: vec![("happened", 6), ("did not", 0)],
        holders: Some(vec![Holder {
            device: 0,
            library: "app".to_string(),
            bytes: 5,
            bytes_at_peak: 6,
        }]),
        ..Report::default()
    };
    let said = text(&report);
    assert!(said.contains("device ID 0, context 1  "), "{said}");
    assert!(said.contains("device ID 0, context 2, gone  "), "{said}");
    let tables = said.rsplit_once("|\n\n").expect("the tables come first");
    let lines: Vec<String> = tables
        .1
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let wanted = [
        "cachealloc 1.2",
        "process 7",
        "free_mode ordered",
        "allocations served 0",
        "of these without the driver 0",
        "since one reached the driver 1.50 s",
        "barriers 4",
        "driver: reserve 3 (1.50 ms)",
        "driver: free 0",
        "waits, look 5",
        "happened 6",
        "",
        "device at the peak now library",
        "0 6 B 5 B app",
    ];
    assert_eq!(lines, wanted);
    assert!(text(&Report::default()).contains("not recorded (record:state)"));
}
