# What a report must find in a CuPy script in which every array is a separate cudaMalloc.
import cupy

cupy.cuda.set_allocator(None)
kept = []


def remember(step):
    kept.append(cupy.full(1 << 20, step, dtype=cupy.float32))  # planted: leak


def smooth(x):
    for _ in range(300):
        x = cupy.sqrt(x)  # planted: temporaries
    return x


def main():
    table = cupy.ones((64, 1 << 20), dtype=cupy.float32)  # planted: weights
    for step in range(20):
        remember(step)
    print(float(smooth(cupy.ones(1 << 18, dtype=cupy.float32)).sum()), float(table[3, 7]))


main()
