"""A CuPy capture whose arrays come from cudaMalloc. Checks itself; under the library only, as the capture ends without it."""

import cupy


def main():
    cupy.cuda.set_allocator(None)  # cudaMalloc and cudaFree for each array
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        source = cupy.arange(1 << 20, dtype=cupy.float32)
        target = cupy.empty_like(source)
        (cupy.sqrt(source * 2.0 + 1.0) - source).sum()  # compiles the kernels
        stream.synchronize()
        stream.begin_capture()
        once = source * 2.0 + 1.0
        twice = cupy.sqrt(once) - source
        del once
        cupy.copyto(target, twice)
        del twice
        graph = stream.end_capture()
        for i in range(200):
            noise = cupy.full(1 << 18, i, dtype=cupy.int32)
            source += 1.0
            graph.launch(stream)
            want = cupy.sqrt(source * 2.0 + 1.0) - source
            assert bool(cupy.allclose(target, want)), i
            assert bool((noise == i).all()), "a launch wrote to another array"
        stream.synchronize()
    print("graph_cupy: ok")


main()
