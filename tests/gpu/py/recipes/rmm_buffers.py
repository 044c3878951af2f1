# RMM: without a pool, as the recipe has it, or with one.
#
# needs: rmm
import os

import rmm

if "RECIPE_CACHED" in os.environ:
    rmm.reinitialize(pool_allocator=True, initial_pool_size=256 << 20)
else:
    rmm.reinitialize(pool_allocator=False)
kept = []
for step in range(8):
    kept.append(rmm.DeviceBuffer.to_device(bytes([step]) * (4 << 20)))  # tensor: 4194304 x 8
    temporary = rmm.DeviceBuffer(size=2 << 20)  # tensor: 2097152 x 8
    del temporary
print("sum", sum(int(buffer.copy_to_host().sum()) for buffer in kept))
