//! Segments of a framework's cache are not taken for tensors.

use cachealloc_analysis::model::Action;

use crate::findings::sentences;
use crate::made::{MIB, Made};
use crate::page::written;

/// Returns the report's sentences on caches for these requests: (function, file, bytes).
fn said(requests: &[(&str, &str, u64)]) -> Vec<String> {
    let mut made = Made::new();
    for (number, &(name, file, bytes)) in (1..).zip(requests) {
        let stack = made.stack(&[
            ("cudaMalloc", "/usr/lib/libcudart.so.13", 1),
            (name, file, 2),
            ("forward", "/home/user/model.py", 3),
        ]);
        made.entry(Action::Alloc, number << 40, bytes, stack);
    }
    let found = sentences(&written(&[made.input("cached")]));
    found.into_iter().filter(|sentence| sentence.contains("its own cache")).collect()
}

const TORCH: &str = "/usr/lib/python3/dist-packages/torch/lib/libc10_cuda.so";
const CACHE: &str = "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::alloc_block";

#[test]
fn segments_of_pytorch_are_reported() {
    let sentence = |what: &str| {
        format!(
            "PyTorch has its own cache: 2 allocations, 22.0 MiB, {what}; to see tensors, run it with \
             PYTORCH_NO_CUDA_MEMORY_CACHING=1 (cachealloc run --uncached)."
        )
    };
    // The function identifies the cache; where it has no name, the sizes do.
    let certain = sentence("are its segments");
    assert_eq!(said(&[(CACHE, TORCH, 20 * MIB), (CACHE, TORCH, 2 * MIB)]), [certain]);
    let likely = sentence("look like its segments (multiples of 2.00 MiB)");
    assert_eq!(said(&[("??", TORCH, 20 * MIB), ("", TORCH, 2 * MIB)]), [likely.as_str()]);
    // Tensors that the program itself allocates are beside the cache.
    let own = ("get", "/home/user/app.c", 100);
    assert_eq!(said(&[("", TORCH, 20 * MIB), own, ("", TORCH, 2 * MIB)]), [likely]);
}

#[test]
fn tensors_are_no_segments() {
    assert_eq!(said(&[("??", TORCH, 512), ("", TORCH, 2 * MIB)]), [""; 0]);
    let uncached = "c10::cuda::CUDACachingAllocator::Native::uncached_allocate";
    assert_eq!(said(&[(uncached, TORCH, 4 * MIB), (CACHE, TORCH, 2 * MIB)]), [""; 0]);
    assert_eq!(said(&[("get", "/home/user/app.c", 2 * MIB)]), [""; 0]);
    // PyTorch's function that bypasses the cache may have no name.
    let allocate =
        "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)";
    assert_eq!(said(&[(allocate, TORCH, 2 * MIB)]), [""; 0]);
}

#[test]
fn other_frameworks_have_their_own_line() {
    let jax = "/site-packages/jax_plugins/xla_cuda12/xla_cuda_plugin.so";
    let found =
        said(&[("", jax, 512 * MIB), ("tsl::BFCAllocator::Extend(unsigned long)", jax, 77)]);
    assert!(found[0].starts_with("JAX has its own cache: 2 allocations, "), "{found:?}");
    assert!(found[0].contains("XLA_PYTHON_CLIENT_ALLOCATOR=platform"), "{found:?}");
    // Its error is not the driver's.
    assert!(found[0].contains("XLA_PYTHON_CLIENT_MEM_FRACTION"), "{found:?}");
    let pool = "__pyx_f_4cupy_4cuda_6memory_22SingleDeviceMemoryPool__alloc";
    let found = said(&[(pool, "/site-packages/cupy/cuda/memory.cpython-312.so", 512)]);
    assert!(found[0].ends_with("call cupy.cuda.set_allocator(None) in the program."), "{found:?}");
    // The name identifies TensorFlow's cache as it does JAX's.
    let tensorflow = "/site-packages/tensorflow/libtensorflow_framework.so.2";
    let found = said(&[("tsl::BFCAllocator::Extend(unsigned long)", tensorflow, 77)]);
    assert!(found[0].starts_with("TensorFlow has its own cache: "), "{found:?}");
    let asynchronous = "tensorflow::GpuCudaMallocAsyncAllocator::AllocateRaw";
    assert_eq!(said(&[(asynchronous, tensorflow, 77)]), [""; 0]);
    let paddle = "/site-packages/paddle/libs/libphi.so";
    let cache =
        "paddle::memory::allocation::AutoGrowthBestFitAllocator::AllocateImpl(unsigned long)";
    let found = said(&[(cache, paddle, 8 * MIB)]);
    assert!(found[0].starts_with("Paddle has its own cache: 1 allocation, "), "{found:?}");
    assert!(found[0].contains("FLAGS_use_system_allocator=1"), "{found:?}");
    let system = "paddle::memory::allocation::CUDAAllocator::AllocateImpl(unsigned long)";
    assert_eq!(said(&[(system, paddle, 8 * MIB)]), [""; 0]);
    let rmm = "/site-packages/librmm/lib64/librmm.so";
    let pool = "rmm::_RMM_26_10::mr::detail::pool_memory_resource_impl::try_to_expand";
    let device = "rmm::_RMM_26_10::mr::cuda_memory_resource::allocate";
    let found = said(&[(pool, rmm, 512), (device, rmm, 512)]);
    assert!(found[0].starts_with("RMM has its own cache: 1 allocation, 512 B, "), "{found:?}");
}

/// PyTorch's own snapshots have its tensors, below the same functions.
#[test]
fn snapshots_of_pytorch_are_left_alone() {
    let mut made = Made::new();
    made.snapshot.settings.ours.clear();
    let stack = made.stack(&[(CACHE, TORCH, 1)]);
    made.keep(1 << 40, 2 * MIB, stack);
    let found = sentences(&written(&[made.input("theirs")]));
    assert!(!found.iter().any(|sentence| sentence.contains("its own cache")), "{found:?}");
}

/// The live blocks identify the cache where there is no history.
#[test]
fn live_blocks_suffice_to_recognize_segments() {
    let mut made = Made::new();
    let stack = made.stack(&[(CACHE, TORCH, 1)]);
    made.keep(1 << 40, 2 * MIB, stack);
    made.edit(Vec::clear);
    let found = sentences(&written(&[made.input("state")]));
    assert!(
        found.iter().any(|sentence| sentence.contains("1 allocation, 2.00 MiB, ")),
        "{found:?}"
    );
}
