"""The memory that a captured workload keeps reserved, in MiB: two shapes, captured once. One line of JSON.

The same script under PyTorch's own cache (with its PYTORCH_CUDA_ALLOC_CONF) and, with PYTORCH_NO_CUDA_MEMORY_CACHING=1, under
the library.
"""

import gc
import json
import os
import time

import torch


def free_mib():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    time.sleep(0.3)
    torch.cuda.mem_get_info()
    return torch.cuda.mem_get_info()[0] >> 20


def branches(side, steps=64, size=1 << 22):
    """Temporaries that two streams use, freed while the second one uses them: record_stream and a join in each step."""
    main = torch.cuda.current_stream()
    total = torch.zeros(size, device="cuda")
    for step in range(steps):
        x = torch.full((size,), float(step), device="cuda")
        side.wait_stream(main)
        with torch.cuda.stream(side):
            y = x * 2.0
            x.record_stream(side)
            z = y + 1.0
        main.wait_stream(side)
        y.record_stream(main)
        z.record_stream(main)
        total = total + z
        del x, y, z
    return total


def layers(side, net=[]):
    if not net:
        torch.manual_seed(0)
        parts = []
        for _ in range(8):
            parts += [torch.nn.Linear(2048, 2048), torch.nn.GELU(), torch.nn.LayerNorm(2048)]
        net += [torch.nn.Sequential(*parts).cuda().eval(), torch.randn(2048, 2048, device="cuda")]
    with torch.no_grad():
        return net[0](net[1])


def main():
    side = torch.cuda.Stream()
    result = {"conf": os.environ.get("CACHEALLOC_CONF", ""), "torch": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")}
    for name, work in [("branches", branches), ("layers", layers)]:
        for _ in range(2):
            expected = work(side)
        expected = expected.double().sum().item()
        before = free_mib()
        graph = torch.cuda.CUDAGraph()
        start = time.perf_counter()
        with torch.cuda.graph(graph):
            out = work(side)
        capture_ms = (time.perf_counter() - start) * 1e3
        kept = before - free_mib()
        times = []
        for _ in range(20):
            torch.cuda.synchronize()
            start = time.perf_counter()
            graph.replay()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) * 1e3)
        right = abs(out.double().sum().item() - expected) <= 1e-6 * abs(expected)
        del out, graph
        result[name] = {
            "kept_mib": kept,
            "after_mib": before - free_mib(),
            "capture_ms": round(capture_ms, 1),
            "replay_ms": round(sorted(times)[10], 3),
            "right": right,
        }
    print(json.dumps(result))


main()
