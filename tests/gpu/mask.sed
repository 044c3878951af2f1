# What may differ between two native runs of one program: applied to both outputs before they are compared.

# Our own programs put timings on lines of their own.
/^time:/d

# Addresses.
s/0x[0-9a-fA-F]{6,}/ADDRESS/g

# NVIDIA's samples: every number on a line that speaks of time or speed.
/(\btime|\bms\b|\bm?secs?\b|seconds?\b|\/s\b|\/sec\b|throughput|bandwidth|performance|\bperf\b|[gt]flops|speedup|elapsed|took|\brate|MB\/s|GB\/s|streamed:|streams:|memcopy:|kernel:|iterations while waiting)/I s/-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?/N/g

# cdpSimplePrint: which block the device starts first.
s/BLOCK [0-9]+ launched by thread [0-9]+ of block [0-9]+/BLOCK N launched by thread N of block N/

# The IPC samples name what they share after the process.
s/(lshmName = [A-Za-z_]+)[0-9]+/\1N/

# immaTensorCoreGemm: a speed without a word for it.
s/TOPS: [0-9.]+/TOPS: N/

# ptxjit: what was compiled once is not compiled again.
/^ptxas /d

# graphMemoryFootprint: how much memory graphs in flight take together depends on how they overlap.
s/FOOTPRINT: [0-9]+ bytes/FOOTPRINT: N bytes/
