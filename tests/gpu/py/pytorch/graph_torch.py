"""PyTorch's graphs without its cache: without the library, a cudaMalloc in a capture ends it. Checks itself; under the
library only, with PYTORCH_NO_CUDA_MEMORY_CACHING=1.
"""

import gc
import time

import torch


def free_mib():
    gc.collect()
    torch.cuda.synchronize()
    time.sleep(0.2)
    torch.cuda.mem_get_info()
    return torch.cuda.mem_get_info()[0] >> 20


def model():
    torch.manual_seed(0)
    layers = []
    for _ in range(4):
        layers += [torch.nn.Linear(1024, 1024), torch.nn.GELU(), torch.nn.LayerNorm(1024)]
    return torch.nn.Sequential(*layers).cuda()


def forward(side):
    net = model().eval()
    static = torch.zeros(256, 1024, device="cuda")
    with torch.no_grad():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                net(static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = net(static)
        worst = 0.0
        for i in range(200):
            data = torch.randn(256, 1024, device="cuda")
            noise = [torch.full((1 << 18,), float(i), device="cuda") for _ in range(4)]
            static.copy_(data)
            graph.replay()
            want = net(data)
            worst = max(worst, (out - want).abs().max().item())
            assert all((n == float(i)).all() for n in noise), "a replay wrote to another tensor"
            del noise, data, want
    assert worst < 1e-3, f"a replay computed something else: {worst}"
    return worst


def callables():
    net, twin = model(), model()
    sample = torch.randn(256, 1024, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(net, (sample,))
    worst = 0.0
    for i in range(50):
        torch.manual_seed(i)
        data = torch.randn(256, 1024, device="cuda")
        one, two = data.clone().requires_grad_(), data.clone().requires_grad_()
        a, b = graphed(one), twin(two)
        a.square().mean().backward()
        b.square().mean().backward()
        worst = max(worst, (a - b).abs().max().item(), (one.grad - two.grad).abs().max().item() * 1e3)
        for p, q in zip(net.parameters(), twin.parameters()):
            worst = max(worst, (p.grad - q.grad).abs().max().item() * 1e2)
        net.zero_grad(set_to_none=True)
        twin.zero_grad(set_to_none=True)
    assert worst < 1e-2, f"a replay computed something else: {worst}"


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.ones(1 << 20, device="cuda").sum().item()
    torch.mm(torch.ones(64, 64, device="cuda"), torch.ones(64, 64, device="cuda")).sum().item()
    # cuBLAS keeps a workspace of 32 MiB for each stream that it has met.
    side = torch.cuda.Stream()
    forward(side)
    before = free_mib()
    for _ in range(3):
        forward(side)
    after = free_mib()
    print(f"free MiB before and after three more graphs: {before} {after}")
    assert after + 64 >= before, "memory of destroyed graphs is still in use"
    callables()
    print("graph_torch: ok")


main()
