//! Which library asked for memory: the innermost one on the stack that does not merely forward
//! requests. Its category is a name that users know, or else its file name.

/// Libraries that only forward requests, and so hold no memory themselves. The last three lead from
/// Python to C (`libffi`, `ctypes`) and hold the interpreter, where it is not part of the program.
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

/// Start of a file name, and the category shown for it.
const NAMES: [(&str, &str); 24] = [
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
    ("libphi", "Paddle"),
    ("libpaddle", "Paddle"),
    ("libonnxruntime", "ONNX Runtime"),
    ("librmm", "RMM"),
    ("libucp", "UCX"),
    ("libuct", "UCX"),
];

/// Category of memory that no library asked for.
pub const UNKNOWN: &str = "unknown";

/// Returns the category of a stack, given the paths of its modules, innermost first. `program` is
/// the path of the main program, whose memory is the application's.
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

/// Returns the name without `.so` and version: `libfoo` for `libfoo.so.1.2`.
fn stem(file: &str) -> String {
    file.split(".so").next().unwrap_or(file).to_string()
}
