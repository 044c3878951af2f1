# Masks what may differ between two runs of a program without the library. Applied to both outputs before the comparison.

# This project's programs print timings on separate lines.
/^time:/d

# Addresses.
s/0x[0-9a-fA-F]{6,}/ADDRESS/g

# NVIDIA's samples: every number on a line about time or speed.
/(\btime|\bms\b|\bm?secs?\b|seconds?\b|\/s\b|\/sec\b|throughput|bandwidth|performance|\bperf\b|[gt]flops|speedup|elapsed|took|\brate|MB\/s|GB\/s|streamed:|streams:|memcopy:|kernel:|iterations while waiting)/I s/-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?/N/g

# cdpSimplePrint: the order in which the device starts blocks.
s/BLOCK [0-9]+ launched by thread [0-9]+ of block [0-9]+/BLOCK N launched by thread N of block N/

# The IPC samples include the process number in the name of shared memory.
s/(lshmName = [A-Za-z_]+)[0-9]+/\1N/

# immaTensorCoreGemm: a speed.
s/TOPS: [0-9.]+/TOPS: N/

# ptxjit: compiled code is cached.
/^ptxas /d

# graphMemoryFootprint: the memory of several graphs in flight depends on their overlap.
s/FOOTPRINT: [0-9]+ bytes/FOOTPRINT: N bytes/
