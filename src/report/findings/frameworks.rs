//! Detects frameworks with their own caches. Such a framework requests segments from the library
//! and cuts tensors from them where the library cannot see it. The report says so, and how to make
//! tensors visible.

use std::collections::HashMap;

use cachealloc_analysis::model::{Action, BlockState, Device, Frame, Snapshot, StackId};
use cachealloc_text::{bytes, plural};

struct Framework {
    name: &'static str,
    /// Start of the paths of its allocator's files.
    files: &'static [&'static str],
    /// Parts of function names that mark where its cache grows (any of these). `bypassed` is such
    /// a part that marks where it is bypassed.
    grows: &'static [&'static str],
    bypassed: &'static str,
    /// Part of the name of the function that chooses between the two, or empty: without a function
    /// of the cache below it, the cache is bypassed. PyTorch's own name for that is not exported.
    enters: &'static str,
    /// Size of which its segments are multiples; 0 if they are as large as the request.
    segment_bytes: u64,
    remedy: &'static str,
    /// Default limit at which its cache refuses a request before the driver does, or empty.
    limit: &'static str,
}

const FRAMEWORKS: [Framework; 6] = [
    Framework {
        name: "PyTorch",
        files: &["libc10_cuda"],
        grows: &["DeviceCachingAllocator"],
        bypassed: "uncached_allocate",
        enters: "NativeCachingAllocator::allocate",
        segment_bytes: 2 << 20,
        remedy: "run it with PYTORCH_NO_CUDA_MEMORY_CACHING=1 (cachealloc run --uncached)",
        limit: "",
    },
    Framework {
        name: "JAX",
        files: &["xla_extension", "xla_cuda_plugin", "libjax_common", "pjrt_c_api_gpu"],
        grows: &["BFCAllocator"],
        bypassed: "StreamExecutorMemoryAllocator",
        enters: "",
        segment_bytes: 1 << 20,
        remedy: "run it with XLA_PYTHON_CLIENT_ALLOCATOR=platform and \
                 XLA_PYTHON_CLIENT_PREALLOCATE=false (cachealloc run --uncached)",
        limit: "XLA_CLIENT_MEM_FRACTION, before it XLA_PYTHON_CLIENT_MEM_FRACTION, 0.75 of the \
                device by default",
    },
    Framework {
        name: "CuPy",
        files: &[],
        grows: &["SingleDeviceMemoryPool"],
        bypassed: "",
        enters: "",
        segment_bytes: 0,
        remedy: "call cupy.cuda.set_allocator(None) in the program",
        limit: "",
    },
    Framework {
        name: "TensorFlow",
        files: &["libtensorflow", "_pywrap_tensorflow"],
        grows: &["BFCAllocator"],
        bypassed: "GpuCudaMallocAsyncAllocator",
        enters: "",
        segment_bytes: 0,
        remedy: "run it with TF_GPU_ALLOCATOR=cuda_malloc_async (cachealloc run --uncached)",
        limit: "",
    },
    Framework {
        name: "Paddle",
        files: &["libphi", "libpaddle"],
        grows: &["AutoGrowthBestFitAllocator", "NaiveBestFitAllocator", "BuddyAllocator"],
        bypassed: "",
        enters: "",
        segment_bytes: 0,
        remedy: "run it with FLAGS_use_system_allocator=1 (cachealloc run --uncached)",
        limit: "",
    },
    Framework {
        name: "RMM",
        files: &[],
        grows: &["pool_memory_resource", "arena_memory_resource", "fixed_size_memory_resource"],
        bypassed: "",
        enters: "",
        segment_bytes: 0,
        remedy: "call rmm.reinitialize(pool_allocator=False) in the program, or omit its pool",
        limit: "",
    },
];

/// Meaning of one frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    Nothing,
    /// A frame of this framework's allocator.
    Passes(usize),
    Enters(usize),
    Grows(usize),
    Bypassed(usize),
}

/// Requests through one framework's allocator.
#[derive(Default)]
struct Requests {
    count: u64,
    bytes: u64,
    /// Whether all of them could be segments.
    all_fit: bool,
    /// Whether a request has the framework's cache on its stack. `bypassed` tells whether one is
    /// known to bypass it.
    grows: bool,
    bypassed: bool,
}

/// Returns a sentence for each framework whose segments are in the snapshot.
pub(crate) fn segments_of_caches(snapshot: &Snapshot) -> Vec<String> {
    // PyTorch's own snapshots contain tensors.
    if !snapshot.is_ours() {
        return Vec::new();
    }
    let says: Vec<Says> = snapshot.frames.all().iter().map(|frame| says(snapshot, frame)).collect();
    if says.iter().all(|it| *it == Says::Nothing) {
        return Vec::new();
    }
    let mut by_framework = FRAMEWORKS.map(|_| Requests { all_fit: true, ..Requests::default() });
    let mut by_stack: HashMap<StackId, Says> = HashMap::new();
    for (stack, size) in snapshot.devices.iter().flat_map(requests) {
        let said = *by_stack.entry(stack).or_insert_with(|| {
            let frames = snapshot.stacks.get(stack).iter();
            strongest(frames.map(|frame| says[frame.0 as usize]))
        });
        let of = match said {
            Says::Nothing => continue,
            Says::Passes(of) | Says::Enters(of) | Says::Grows(of) | Says::Bypassed(of) => of,
        };
        let requests = &mut by_framework[of];
        requests.count += 1;
        requests.bytes = requests.bytes.saturating_add(size);
        let unit = FRAMEWORKS[of].segment_bytes;
        requests.all_fit &= unit != 0 && size.is_multiple_of(unit);
        requests.grows |= said == Says::Grows(of);
        requests.bypassed |= matches!(said, Says::Enters(_) | Says::Bypassed(_));
    }
    let found = FRAMEWORKS.iter().zip(&by_framework);
    let found = found.filter(|(_, requests)| requests.are_segments());
    let has_failed = snapshot.devices.iter().flat_map(|device| &device.entries);
    let has_failed = has_failed.into_iter().any(|entry| entry.action == Action::OutOfMemory);
    let sentence = |(framework, requests): (&Framework, &Requests)| {
        let sentence = requests.sentence(framework);
        match framework.limit {
            "" => sentence,
            _ if has_failed => sentence,
            limit => format!(
                "{sentence} No driver call failed for lack of memory: if {} reported such an error, its own \
                 limit refused the request ({limit}).",
                framework.name
            ),
        }
    };
    found.map(sentence).collect()
}

impl Requests {
    fn are_segments(&self) -> bool {
        self.count > 0 && !self.bypassed && (self.grows || self.all_fit)
    }

    fn sentence(&self, framework: &Framework) -> String {
        let Framework { name, remedy, segment_bytes, .. } = framework;
        let (blocks, size) = (plural(self.count, "allocation"), bytes(self.bytes));
        let what = match self.grows {
            true => "are its segments".to_string(),
            false => format!("look like its segments (multiples of {})", bytes(*segment_bytes)),
        };
        format!("{name} has its own cache: {blocks}, {size}, {what}; to see tensors, {remedy}.")
    }
}

/// Returns stack and bytes of each request in the history, or of each live block if there is no
/// history.
fn requests(device: &Device) -> Box<dyn Iterator<Item = (StackId, u64)> + '_> {
    let allocated = device.entries.iter().filter(|entry| entry.action == Action::Alloc);
    let mut allocated = allocated.map(|entry| (entry.stack, entry.bytes)).peekable();
    if allocated.peek().is_some() {
        return Box::new(allocated);
    }
    let blocks = device.segments.iter().flat_map(|segment| &segment.blocks);
    let live = blocks.filter(|block| block.state == BlockState::Allocated);
    Box::new(live.map(|block| (block.stack, block.requested_bytes)))
}

fn says(snapshot: &Snapshot, frame: &Frame) -> Says {
    let (name, path) = (snapshot.texts.get(frame.name), snapshot.texts.get(frame.filename));
    let file = path.rsplit('/').next().unwrap_or(path);
    let is_its_file = |it: &Framework| it.files.iter().any(|begin| file.starts_with(begin));
    let grows = |it: &Framework| it.grows.iter().any(|part| name.contains(part));
    let has = |part: &str| !part.is_empty() && name.contains(part);
    let bypassed = |it: &Framework| has(it.bypassed);
    // TensorFlow and JAX use one cache under one name. The source file distinguishes them, if it is
    // known.
    let known = FRAMEWORKS.iter().position(is_its_file);
    let Some(of) = known.or_else(|| FRAMEWORKS.iter().position(|it| bypassed(it) || grows(it)))
    else {
        return Says::Nothing;
    };
    match &FRAMEWORKS[of] {
        it if bypassed(it) => Says::Bypassed(of),
        it if grows(it) => Says::Grows(of),
        it if has(it.enters) => Says::Enters(of),
        _ => Says::Passes(of),
    }
}

fn strongest(frames: impl Iterator<Item = Says>) -> Says {
    let rank = |says: &Says| match says {
        Says::Nothing => 0,
        Says::Passes(_) => 1,
        Says::Enters(_) => 2,
        Says::Grows(_) => 3,
        Says::Bypassed(_) => 4,
    };
    frames.max_by_key(rank).unwrap_or(Says::Nothing)
}
