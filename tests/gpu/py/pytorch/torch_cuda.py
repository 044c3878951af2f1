# What PyTorch's test/test_cuda.py covers: streams, events, pinned copies, autograd across streams, threads, out of
# memory, worker processes, memory shared between processes. With PYTORCH_NO_CUDA_MEMORY_CACHING=1 every tensor is a
# cudaMalloc and a cudaFree.
#
# needs: torch
import faulthandler
import os
import sys
import threading

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
import torch.multiprocessing as mp

faulthandler.enable()
CACHING = os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") in ("", "0")


def streams_and_events():
    streams = [torch.cuda.Stream() for _ in range(4)]
    wrong = 0
    for i in range(60):
        s, t = streams[i % 4], streams[(i + 1) % 4]
        with torch.cuda.stream(s):
            a = torch.full((1000 + 311 * i,), i, device="cuda", dtype=torch.int64)
            done = s.record_event()
        t.wait_event(done)
        with torch.cuda.stream(t):
            a.record_stream(t)
            b = a * 3
            b.record_stream(s)
        del a
        s.wait_stream(t)
        with torch.cuda.stream(s):
            wrong += not bool((b == 3 * i).all())
        del b
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    torch.empty(1000, device="cuda").fill_(1)
    end.record()
    end.synchronize()
    return wrong, start.elapsed_time(end) >= 0, end.query()


def pinned_copies():
    wrong = 0
    host = torch.empty(1 << 20, dtype=torch.int32, pin_memory=True)
    back = torch.empty(1 << 20, dtype=torch.int32, pin_memory=True)
    stream = torch.cuda.Stream()
    for i in range(40):
        host.fill_(i)
        with torch.cuda.stream(stream):
            device = host.to("cuda", non_blocking=True)
            back.copy_(device + 1, non_blocking=True)
        del device
        stream.synchronize()
        wrong += not bool((back == i + 1).all())
    for i in range(20):  # pageable, and non-contiguous
        x = torch.arange(10000).reshape(100, 100)
        y = x.to("cuda").t()[::2].cpu()
        wrong += not torch.equal(y, x.t()[::2])
    return wrong


def autograd_across_streams():
    torch.manual_seed(0)
    side = torch.cuda.Stream()
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for i in range(30):
        x = torch.randn(128, 64, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            hidden = model[1](model[0](x))
        torch.cuda.current_stream().wait_stream(side)
        hidden.record_stream(torch.cuda.current_stream())
        loss = model[2](hidden).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del x, hidden
    return f"{loss.item():.6f}", f"{sum(p.double().sum().item() for p in model.parameters()):.6f}"


def operators():
    torch.manual_seed(1)
    x = torch.randint(0, 1000, (300, 400), device="cuda")
    f = torch.randn(200, 200, device="cuda", dtype=torch.float64)
    answers = [
        int(x.sort(dim=1).values[:, ::13].sum()),
        int(x.unique().numel()),
        int(x.nonzero().sum()),
        int(x[x > 500].sum()),
        int(torch.cumsum(x, 0)[-1].sum()),
        int(x.topk(5).values.sum()),
        int(torch.bincount(x.flatten()).max()),
        round(torch.linalg.svdvals(f)[0].item(), 6),
        round(torch.linalg.solve(f + 30 * torch.eye(200, device="cuda", dtype=torch.float64), f[:, :3]).sum().item(), 6),
        round(torch.fft.ifft(torch.fft.fft(f)).real.sum().item(), 6),
        round(torch.nn.functional.conv2d(f.reshape(1, 1, 200, 200), f[:9, :9].reshape(1, 1, 9, 9)).sum().item(), 5),
    ]
    index = torch.tensor([[0, 1, 2, 0], [2, 0, 1, 1]], device="cuda")
    sparse = torch.sparse_coo_tensor(index, torch.tensor([1.0, 2.0, 3.0, 4.0], device="cuda"), (3, 3))
    answers.append(float((sparse @ torch.ones(3, 2, device="cuda")).sum()))
    return answers


def many_threads():
    wrong = [0] * 6

    def work(number):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i in range(40):
                x = torch.full((500 + 97 * i,), number * 100 + i, device="cuda")
                y = x + 1
                del x
                wrong[number] += not bool((y == number * 100 + i + 1).all())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def memory():
    free, total = torch.cuda.mem_get_info()
    answers = [0 < free <= total, total]
    for _ in range(3):
        x = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
        del x
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    answers.append(torch.cuda.mem_get_info()[0] > 0)
    return answers


def out_of_memory():
    answers = []
    for size in [1 << 42, (1 << 62) // 8]:
        try:
            torch.empty(size, dtype=torch.uint8, device="cuda")
            answers.append("allocated")
        except torch.OutOfMemoryError:
            answers.append("OutOfMemoryError")
        except RuntimeError as error:
            answers.append(type(error).__name__)
    x = torch.arange(1000, device="cuda")
    answers.append(int(x.sum()))
    torch.cuda.synchronize()
    return answers


def graphs():
    if not CACHING:
        return "only with PyTorch's caching"
    x = torch.zeros(1000, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            (x * 2 + 1).sum()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2 + 1
        z = y.cumsum(0)
    total = 0
    for i in range(20):
        x.fill_(i)
        graph.replay()
        total += int(z[-1])
        torch.empty(3000 + i, device="cuda").fill_(7)
    del graph, y, z
    return total


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        return torch.full((64, 64), i, dtype=torch.int64)


def loader():
    """Workers forked from a process that has used CUDA; pinned memory from a thread."""
    rows = torch.utils.data.DataLoader(Rows(), batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context="fork")
    return sum(int(batch.to("cuda", non_blocking=True).sum()) for _ in range(2) for batch in rows)


def receive(queue, answers):
    """Another process, which reads and writes the tensors that it is sent."""
    for _ in range(6):
        x = queue.get()
        total = int(x.sum())
        x.add_(1)
        torch.cuda.synchronize()
        answers.put(total)
        del x
    torch.cuda.ipc_collect()


def shared_with_another_process():
    context = mp.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=receive, args=(queue, answers))
    child.start()
    results = []
    try:
        for i in range(6):
            small = torch.full((100,), 9, device="cuda", dtype=torch.int64)
            x = torch.full((1000 * 8**i // 10 + 10,), i, device="cuda", dtype=torch.int64)
            torch.cuda.synchronize()
            queue.put(x)
            results.append(answers.get(timeout=30))
            results.append(bool((x == i + 1).all()) and bool((small == 9).all()))
            del x, small
    except Exception as error:
        results.append(type(error).__name__)
        child.terminate()
    child.join()
    return results


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True, warn_only=True)
    for case in [
        streams_and_events, pinned_copies, autograd_across_streams, operators, many_threads, memory, out_of_memory, graphs,
        loader, shared_with_another_process,
    ]:
        try:
            print(f"{case.__name__}: {case()}", flush=True)
        except Exception as error:
            print(f"{case.__name__}: {type(error).__name__}", flush=True)
            print(f"{case.__name__}: {error}", file=sys.stderr)
    torch.cuda.synchronize()
    print("done")
