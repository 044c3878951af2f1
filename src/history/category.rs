//! Which library asked for memory: the first one on the stack that is not in between. A name that
//! users know, else the file's own.

/// Libraries that hand requests on, and so hold no memory of their own. The last three are
/// by what Python calls C, with its interpreter, where that is no part of the program.
const BETWEEN: [&str; 9] = [
    "libcudart",
    "libcuda.",
    "libcachealloc",
    "libc.",
    "libpthread",
    "ld-linux",
    "libffi.",
    "_ctypes.",
    "libpython",
];

/// Begin of a file name, and what it is called.
const NAMES: [(&str, &str); 22] = [
    ("libcublas", "cuBLAS"),
    ("libcudnn", "cuDNN"),
    ("libcufft", "cuFFT"),
    ("libcusolver", "cuSOLVER"),
    ("libcusparse", "cuSPARSE"),
    ("libcurand", "cuRAND"),
    ("libcutensor", "cuTENSOR"),
    ("libnccl", "NCCL"),
    ("libnvshmem", "NVSHMEM"),
    ("libnvinfer", "TensorRT"),
    ("libnvjpeg", "nvJPEG"),
    ("libtorch", "PyTorch"),
    ("libc10", "PyTorch"),
    ("xla_cuda", "JAX"),
    ("pjrt_c_api", "JAX"),
    ("_jax", "JAX"),
    ("xla_extension", "JAX"),
    ("libtensorflow", "TensorFlow"),
    ("libonnxruntime", "ONNX Runtime"),
    ("librmm", "RMM"),
    ("libucp", "UCX"),
    ("libuct", "UCX"),
];

/// What is in no library.
pub const UNKNOWN: &str = "unknown";

/// The category of a stack by the paths of its modules, innermost first. `program`: the path of the
/// main program, whose memory is the application's own.
pub fn of<'a>(paths: impl Iterator<Item = &'a str>, program: &str) -> String {
    for path in paths {
        let file = path.rsplit('/').next().unwrap_or(path);
        if path == program {
            return "app".to_string();
        }
        if BETWEEN.iter().any(|between| file.starts_with(between)) {
            continue;
        }
        if path.contains("/cupy") || path.contains("/cupy_backends/") {
            return "CuPy".to_string();
        }
        let known = NAMES.iter().find(|(begin, _)| file.starts_with(begin));
        return known.map_or_else(|| stem(file), |(_, name)| name.to_string());
    }
    UNKNOWN.to_string()
}

/// `libfoo.so.1.2` is `libfoo`.
fn stem(file: &str) -> String {
    file.split(".so").next().unwrap_or(file).to_string()
}
