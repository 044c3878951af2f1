//! The readable text: amounts, the largest sites, and the report before an out-of-memory error.

use std::sync::Arc;

use cachealloc_history::{
    BlockState, Describe, Frame, OomCache, OomKind, OomLimit, OomPart, OomReport, OomRequest, Site,
    StackId, live_sites, oom_report, reasons, sites, without_start,
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

/// A request of 2 GiB on a device that the blocks of a process fill.
fn full() -> OomReport {
    OomReport {
        device: 1,
        request: OomRequest {
            function: "cuMemAlloc",
            kind: OomKind::Linear,
            bytes: Some(2 << 30),
            stack: StackId(2),
        },
        limit: Some(OomLimit { bytes: 135 << 30, held_bytes: 134 << 30, option: "the_option" }),
        driver_free_bytes: Some((5 << 30) / 4),
        driver_total_bytes: Some(139 << 30),
        host_free_bytes: None,
        parts: vec![
            OomPart { title: "cache: held by the program", bytes: 120 << 30, count: 28 },
            OomPart { title: "cache: free", bytes: 14 << 30, count: 0 },
        ],
        rest_bytes: Some(3 << 30),
        cache: OomCache {
            free_bytes: 14 << 30,
            free_block_bytes_max: 512 << 20,
            ..OomCache::default()
        },
        pools_free_bytes: 0,
        graphs_bytes: 0,
        sites: (1..=7).map(site).collect(),
    }
}

/// A report in which nothing is known.
fn empty(kind: OomKind, bytes: Option<u64>) -> OomReport {
    OomReport {
        device: 0,
        request: OomRequest { function: "cuThat", kind, bytes, stack: StackId::NONE },
        limit: None,
        driver_free_bytes: None,
        driver_total_bytes: None,
        host_free_bytes: None,
        parts: Vec::new(),
        rest_bytes: None,
        cache: OomCache::default(),
        pools_free_bytes: 0,
        graphs_bytes: 0,
        sites: Vec::new(),
    }
}

#[test]
fn report_of_a_full_gpu() {
    assert_eq!(
        oom_report(&full(), &mut Named),
        "\
cachealloc: out of memory on device 1: cuMemAlloc asked for 2.00 GiB of linear memory, more than the_option allows
  asked by
               function_0  stack_2.py:0
               function_1  stack_2.py:1
  on the GPU    1.25 GiB free of 139 GiB
  limit         135 GiB (the_option), 134 GiB held by all libraries
  this process  holds, according to its calls:
     120 GiB cache: held by the program, 28 allocations
    14.0 GiB cache: free
             the largest free block of the cache is 512 MiB
    3.00 GiB in use for other purposes: contexts, code, other processes
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
  why           134 GiB of 135 GiB are held: 2.00 GiB more would exceed the limit by 1.00 GiB
                fragmentation: 14.0 GiB are free in the cache, the largest block is 512 MiB
                3.00 GiB are in use, but no call of this process accounts for them
  what helps    set expandable_segments:true, which releases and merges free parts of segments
                list the processes of the GPU with nvidia-smi
"
    );
}

#[test]
fn report_of_what_is_known() {
    assert_eq!(
        oom_report(&empty(OomKind::Other, None), &mut Named),
        "\
cachealloc: out of memory on device 0: cuThat asked for internal memory
  asked by      without a stack
  on the GPU    unknown
  limit         none is set
  this process  holds, according to its calls:
     nothing
  held by       not recorded (record:state or record:all)
"
    );
}

/// The device is full, and the limit allows the request.
#[test]
fn a_limit_that_allows_the_request_is_not_blamed() {
    let limit = OomLimit { bytes: 3 << 30, held_bytes: 1 << 30, option: "the_option" };
    let mut report = empty(OomKind::Linear, Some(2 << 30));
    (report.limit, report.driver_free_bytes) = (Some(limit), Some(1 << 30));
    let text = oom_report(&report, &mut Named);
    let first =
        "cachealloc: out of memory on device 0: cuThat asked for 2.00 GiB of linear memory\n";
    assert!(text.starts_with(first), "{text}");
    let limit = "  limit         3.00 GiB (the_option), 1.00 GiB held by all libraries\n";
    assert!(text.contains(limit), "{text}");
    assert!(
        text.contains("1.00 GiB are free on the device, 1.00 GiB less than requested"),
        "{text}"
    );
    // A limit on device memory does not apply to host memory.
    (report.request.kind, report.request.bytes) = (OomKind::PinnedHost, Some(5 << 30));
    report.host_free_bytes = Some(4 << 30);
    let text = oom_report(&report, &mut Named);
    assert!(!text.contains("more than the_option"), "{text}");
    assert!(
        text.contains("the host has 4.00 GiB available, 1.00 GiB less than requested"),
        "{text}"
    );
}

/// A remedy is derived from a number, and shown only where it suffices.
#[test]
fn hints_follow_from_the_numbers() {
    let helps = |change: fn(&mut OomReport)| {
        let mut report = empty(OomKind::Linear, Some(2 << 30));
        (report.driver_free_bytes, report.driver_total_bytes) = (Some(1 << 30), Some(8 << 30));
        change(&mut report);
        let reasons = reasons(&report).into_iter();
        reasons.filter_map(|reason| reason.help).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(helps(|_| ()), "");
    assert_eq!(helps(|report| report.cache.free_bytes = 1 << 29), "");
    assert!(helps(|report| report.cache.free_bytes = 1 << 30).contains("expandable_segments"));
    let expandable = |report: &mut OomReport| {
        (report.cache.free_bytes, report.cache.is_expandable) = (1 << 30, true);
    };
    assert_eq!(helps(expandable), "");
    assert!(helps(|report| report.cache.waiting_bytes = 1 << 30).contains("synchronize"));
    assert!(helps(|report| report.cache.private_free_bytes = 1 << 30).contains("graphs"));
    assert!(helps(|report| report.graphs_bytes = 1 << 30).contains("cuDeviceGraphMemTrim"));
    assert!(helps(|report| report.pools_free_bytes = 1 << 30).contains("cuMemPoolTrimTo"));
    assert!(helps(|report| report.rest_bytes = Some(1 << 30)).contains("nvidia-smi"));
    let limited = |report: &mut OomReport| {
        let (bytes, held_bytes) = (2 << 30, 1 << 30);
        report.limit = Some(OomLimit { bytes, held_bytes, option: "the_option" });
        report.driver_free_bytes = Some(4 << 30);
    };
    assert!(helps(limited).starts_with("raise the limit to at least 3.00 GiB"));
    // No remedy makes a device larger.
    let larger = |report: &mut OomReport| {
        (report.request.bytes, report.rest_bytes) = (Some(9 << 30), Some(8 << 30));
    };
    assert_eq!(helps(larger), "");
}

/// A kind can be found by its word, and the list of functions leads only to listed kinds.
#[test]
fn kinds_have_words() {
    for kind in OomKind::ALL {
        assert_eq!(OomKind::of_word(kind.word()), Some(*kind));
    }
    let kinds = [
        ("cuMemAlloc", OomKind::Linear),
        ("cuMemAllocHost", OomKind::PinnedHost),
        ("cuGraphLaunch", OomKind::Graph),
        ("cuCtxCreate", OomKind::Context),
        ("cuNothing", OomKind::Other),
    ];
    for (function, kind) in kinds {
        assert_eq!(OomKind::of_function(function), kind, "{function}");
    }
}

/// An offset is not a line, and the frames that lead to `main` are omitted.
#[test]
fn frames_are_those_of_the_program() {
    let frame = |name: &str, filename: &str, line| {
        Arc::new(Frame { name: name.into(), filename: filename.into(), line })
    };
    let start = frame("__libc_start_main@GLIBC_2.2.5", "libc.so.6", 9);
    let frames = [frame("train", "/app/train", 4337), start.clone(), frame("_start", "app", 1)];
    assert_eq!(frames[0].place(), "/app/train+0x10f1");
    assert_eq!(frame("f", "a.py", 7).place(), "a.py:7");
    assert_eq!(without_start(&frames).len(), 1);
    assert_eq!(without_start(&[start]).len(), 1);
}

#[test]
fn names_cannot_steer_the_terminal() {
    let mut report = empty(OomKind::Linear, Some(1));
    let nine = Site { stack: StackId(9), bytes: 1, blocks_count: 1 };
    report.sites = vec![nine, site(8)];
    let text = oom_report(&report, &mut Named);
    assert!(text.contains("red?[31m  two?lines+0x7\n"), "{text}");
    assert!(text.contains("... 2 more\n"), "{text}");
    assert!(text.lines().all(|line| line.len() < 250), "{text}");
}

fn site(stack: u32) -> Site {
    Site { stack: StackId(stack), bytes: (50 << 30) / u64::from(stack), blocks_count: stack.into() }
}

/// The runtime, containers and libraries lie between a request and the line that made it.
#[test]
fn frames_shown_are_those_of_the_program_s_sources() {
    let stack = |innermost: &'static str| {
        vec![
            (innermost, "/opt/torch/lib/../../nvidia/lib/libcudart.so.13", 0x41b5),
            (
                "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long)",
                "/opt/torch/lib/libc10_cuda.so",
                1,
            ),
            ("at::_ops::empty(c10::ArrayRef<c10::SymInt>)", "/opt/torch/lib/libtorch_cpu.so", 2),
            ("_PyEval_EvalFrameDefault", "/usr/lib/libpython3.12.so", 3),
            ("forward", "/home/me/model.py", 7),
            ("call", "/opt/venv/lib/python3.12/site-packages/torch/nn/module.py", 9),
            ("main", "/home/me/model.py", 20),
            ("_start", "/usr/bin/python3", 5),
        ]
    };
    struct Torch([Vec<(&'static str, &'static str, u64)>; 3]);
    impl Describe for Torch {
        fn frames(&mut self, stack: StackId) -> Vec<Arc<Frame>> {
            let frame = |&(name, file, line): &(&str, &str, u64)| {
                Arc::new(Frame { name: name.into(), filename: file.into(), line })
            };
            self.0[stack.0 as usize - 1].iter().map(frame).collect()
        }
        fn category(&mut self, _: StackId) -> String {
            "PyTorch".into()
        }
    }
    let library = vec![
        ("cudaMalloc", "/opt/lib/libcudart.so.13", 1),
        (
            "std::vector<int, std::allocator<int> >::grow(unsigned long, int const*)",
            "/opt/lib/libsolver.so",
            0x41b5,
        ),
    ];
    let mut report = empty(OomKind::Linear, Some(1 << 30));
    report.request.stack = StackId(1);
    // Stacks that differ only in frames that are not shown are one place.
    let site = |stack, bytes| Site { stack: StackId(stack), bytes, blocks_count: 1 };
    report.sites = vec![site(3, 3 << 30), site(1, 2 << 30), site(2, 2 << 30)];
    let text = oom_report(&report, &mut Torch([stack("??"), stack("cudaMalloc"), library]));
    let program = "               forward  /home/me/model.py:7\n               main  /home/me/model.py:20\n               ... 5 more\n";
    assert!(text.contains(&format!("  asked by      PyTorch\n{program}")), "{text}");
    assert!(
        text.contains(&format!(
            "    4.00 GiB in 2 blocks, PyTorch\n{program}    3.00 GiB in 1 block"
        )),
        "{text}"
    );
    assert!(text.contains("               std::vector::grow  libsolver.so+0x41b5\n"), "{text}");
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
