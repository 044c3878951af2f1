# CuPy with the line that makes each array a request to the driver.
#
# needs: cupy
import os

import cupy

if "RECIPE_CACHED" not in os.environ:
    cupy.cuda.set_allocator(None)
kept = []
for step in range(10):
    kept.append(cupy.full(1 << 20, step, dtype=cupy.float32))  # tensor: 4194304 x 10
    temporary = cupy.zeros(1 << 19, dtype=cupy.float32)  # tensor: 2097152 x 10
    temporary += kept[-1][: 1 << 19]
    del temporary
print("sum", float(sum(array.sum() for array in kept)))
