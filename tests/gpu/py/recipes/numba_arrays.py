# Numba: arrays that are kept, and arrays that are dropped at once.
#
# needs: numba
import os
import warnings

warnings.simplefilter("ignore")
os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
import numpy

# Numba's CUDA target names a function that NumPy has dropped.
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack
from numba import cuda


@cuda.jit
def add(x, y):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += y[i]


kept = []
for step in range(8):
    kept.append(cuda.to_device(numpy.full(1 << 20, step, numpy.float32)))  # tensor: 4194304 x 8
    temporary = cuda.to_device(numpy.ones(1 << 20, numpy.float32))  # tensor: 4194304 x 8
    add[1 << 12, 256](kept[-1], temporary)
    del temporary
print("sum", float(sum(array.copy_to_host().sum() for array in kept)))
