//! The readable text: bytes, what holds them, and the report before an out-of-memory error.

use std::sync::Arc;

use cachealloc_history::{
    BlockState, Describe, Frame, OomLimit, OomReport, Site, StackId, live_sites, oom_report, sites,
};

use crate::soundness;

#[test]
fn sites_add_up_and_the_largest_is_first() {
    let blocks = [(2, 100), (1, 300), (2, 250), (3, 350), (4, 350), (0, 1)];
    let sites = sites(blocks.map(|(stack, bytes)| (StackId(stack), bytes)));
    let site = |stack, bytes, blocks_count| Site { stack: StackId(stack), bytes, blocks_count };
    // 2, 3 and 4 hold the same: more blocks first, then the older stack.
    let expected = [site(2, 350, 2), site(3, 350, 1), site(4, 350, 1), site(1, 300, 1)];
    assert_eq!(sites[..4], expected);
    assert_eq!(sites[4..], [site(0, 1, 1)]);
}

#[test]
fn only_held_blocks_of_the_device_count() {
    let mut snapshot = soundness::small();
    snapshot.segments[0].blocks[0].stack = StackId(5);
    snapshot.segments[0].blocks[1].state = BlockState::Pending;
    let expected = [Site { stack: StackId(5), bytes: 1024, blocks_count: 1 }];
    assert_eq!(live_sites(&snapshot, 0), expected);
    assert!(live_sites(&snapshot, 1).is_empty());
}

#[test]
fn report_of_a_full_gpu() {
    let sites: Vec<Site> = (1..=7).map(site).collect();
    let report = OomReport {
        device: 1,
        asked_bytes: 2 << 30,
        limit: Some(OomLimit { bytes: 135 << 30, held_bytes: 134 << 30, option: "the_option" }),
        reserved_bytes: 134 << 30,
        allocated_bytes: 120 << 30,
        free_block_bytes_max: 512 << 20,
        driver_free_bytes: Some((5 << 30) / 4),
        driver_total_bytes: Some(139 << 30),
        sites: &sites,
    };
    assert_eq!(
        oom_report(&report, &mut Named),
        "\
cachealloc: out of memory on device 1: asked for 2.00 GiB, more than the_option allows
  on the GPU    1.25 GiB free of 139 GiB
  limit         135 GiB (the_option), 134 GiB held by all libraries
  reserved      134 GiB of that
  allocated     120 GiB of that
  not in use    14.0 GiB, the largest block is 512 MiB
  held by the largest 5 of 7 call sites:
    50.0 GiB in 1 block, NCCL
               function_0  stack_1.py:0
    25.0 GiB in 2 blocks
               function_0  stack_2.py:0
               function_1  stack_2.py:1
    16.7 GiB in 3 blocks
               function_0  stack_3.py:0
               function_1  stack_3.py:1
               function_2  stack_3.py:2
    12.5 GiB in 4 blocks
               function_0  stack_4.py:0
               function_1  stack_4.py:1
               function_2  stack_4.py:2
               function_3  stack_4.py:3
    10.0 GiB in 5 blocks
               function_0  stack_5.py:0
               function_1  stack_5.py:1
               function_2  stack_5.py:2
               function_3  stack_5.py:3
               function_4  stack_5.py:4
    15.5 GiB elsewhere
"
    );
}

#[test]
fn report_of_what_is_known() {
    let report = OomReport {
        device: 0,
        asked_bytes: 1,
        limit: None,
        reserved_bytes: 0,
        allocated_bytes: 0,
        free_block_bytes_max: 0,
        driver_free_bytes: None,
        driver_total_bytes: None,
        sites: &[],
    };
    assert_eq!(
        oom_report(&report, &mut Named),
        "\
cachealloc: out of memory on device 0: asked for 1 B
  on the GPU    not known
  reserved      0 B by this process, no limit is set
  allocated     0 B of that
  not in use    0 B, the largest block is 0 B
  held by       not recorded
"
    );
}

/// The device is full, and the limit is not in the way.
#[test]
fn a_limit_that_allows_the_request_is_not_blamed() {
    let limit = OomLimit { bytes: 3 << 30, held_bytes: 1 << 30, option: "the_option" };
    let report = OomReport {
        device: 0,
        asked_bytes: 2 << 30,
        limit: Some(limit),
        reserved_bytes: 0,
        allocated_bytes: 0,
        free_block_bytes_max: 0,
        driver_free_bytes: Some(1 << 30),
        driver_total_bytes: None,
        sites: &[],
    };
    let text = oom_report(&report, &mut Named);
    assert!(
        text.starts_with("cachealloc: out of memory on device 0: asked for 2.00 GiB\n"),
        "{text}"
    );
    assert!(
        text.contains("  limit         3.00 GiB (the_option), 1.00 GiB held by all libraries\n"),
        "{text}"
    );
}

#[test]
fn names_cannot_steer_the_terminal() {
    let sites = [Site { stack: StackId(9), bytes: 1, blocks_count: 1 }, site(8)];
    let report = OomReport {
        device: 0,
        asked_bytes: 1,
        limit: None,
        reserved_bytes: 1,
        allocated_bytes: 1,
        free_block_bytes_max: 0,
        driver_free_bytes: Some(1),
        driver_total_bytes: None,
        sites: &sites,
    };
    let text = oom_report(&report, &mut Named);
    assert!(text.contains("red?[31m  two?lines:7\n"), "{text}");
    assert!(text.contains("... 2 more\n"), "{text}");
    assert!(text.lines().all(|line| line.len() < 250), "{text}");
}

fn site(stack: u32) -> Site {
    Site { stack: StackId(stack), bytes: (50 << 30) / u64::from(stack), blocks_count: stack.into() }
}

struct Named;

impl Describe for Named {
    fn frames(&mut self, stack: StackId) -> Vec<Arc<Frame>> {
        if stack == StackId(9) {
            let (name, filename) = ("red\x1b[31m".into(), "two\nlines".into());
            let long = Frame { name: "x".repeat(5000), filename: "long".into(), line: 1 };
            return vec![Arc::new(Frame { name, filename, line: 7 }), Arc::new(long)];
        }
        let frame = |number| Frame {
            name: format!("function_{number}"),
            filename: format!("stack_{}.py", stack.0),
            line: number,
        };
        (0..stack.0.into()).map(|number| Arc::new(frame(number))).collect()
    }

    fn category(&mut self, stack: StackId) -> String {
        if stack == StackId(1) { "NCCL".into() } else { String::new() }
    }
}
