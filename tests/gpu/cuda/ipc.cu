// nvcc: -lcuda
// Memory of one process in another, by legacy IPC: the right bytes or a clear error, never wrong bytes.
//
//   ipc          exporter and importer, each with and without the library (without any library: four times the same)
//   ipc probe    how the driver treats handles, on lines that the comparison drops
//
// Blocks of each size: a pair made before the first export, so that under the library one of them lies inside a
// segment, and one made after it. Sizes below 2 MiB share the driver's own pages: the driver does not promise that
// their bytes stay after the exporter's free, and the library does.
#include <fcntl.h>
#include <sys/wait.h>

#include <string>

#include "check.h"

constexpr size_t MIB = 1 << 20, PAGE = 2 * MIB;
constexpr size_t SIZES[] = {512, 4096, 64 << 10, MIB, MIB + MIB / 2, 3 * MIB, 20 * MIB, 64 * MIB};
constexpr int BLOCKS = 3, LATE = 2;  // blocks of each size; the index of the one made after the first export

enum What : int { OPEN, HOLDS, FILL, RANGE, CLOSE };
struct Request {
    What what;
    int index;
    uint32_t value;
    size_t bytes;
    cudaIpcMemHandle_t handle;
};
struct Answer {
    int code;
    bool yes;
    size_t bytes;
    long long offset;
};

// ---- the importer ----

int import_blocks() {
    Request request;
    uint32_t *opened[BLOCKS] = {};
    while (read(0, &request, sizeof request) == (ssize_t)sizeof request) {
        Answer answer = {};
        uint32_t *&at = opened[request.index];
        switch (request.what) {
        case OPEN: {
            void *address = nullptr;
            answer.code = cudaIpcOpenMemHandle(&address, request.handle, cudaIpcMemLazyEnablePeerAccess);
            cudaGetLastError();
            if (!answer.code) {
                answer.yes = !at || at == address;  // open twice: the same address
                at = (uint32_t *)address;
            }
            break;
        }
        case HOLDS: answer.yes = holds(at, request.bytes, request.value); break;
        case FILL:
            fill<<<64, 256>>>(at, request.bytes / 4, request.value, 0);
            CHECK(cudaDeviceSynchronize());
            break;
        case RANGE: {
            CUdeviceptr base = 0;
            answer.code = cuMemGetAddressRange(&base, &answer.bytes, (CUdeviceptr)at + 256);
            answer.offset = (long long)((CUdeviceptr)at - base);
            break;
        }
        case CLOSE:
            answer.code = cudaIpcCloseMemHandle(at);
            cudaGetLastError();
            break;
        }
        if (write(1, &answer, sizeof answer) != (ssize_t)sizeof answer) return 1;
    }
    return 0;
}

// ---- processes ----

// Starts this program again, with or without the library of the first process.
pid_t start(const char *role, const char *argument, bool library, int in, int out) {
    pid_t child = fork();
    if (child) return child;
    if (in >= 0) dup2(in, 0);
    if (out >= 0) dup2(out, 1);
    const char *path = getenv("IPC_LIBRARY");
    if (library && path) setenv("LD_PRELOAD", path, 1);
    else unsetenv("LD_PRELOAD");
    execl("/proc/self/exe", "ipc", role, argument, (char *)nullptr);
    _exit(127);
}

struct Importer {
    int to, from;
    pid_t child;

    explicit Importer(bool library) {
        int requests[2], answers[2];
        if (pipe2(requests, O_CLOEXEC) || pipe2(answers, O_CLOEXEC)) _exit(4);
        child = start("import", "", library, requests[0], answers[1]);
        close(requests[0]);
        close(answers[1]);
        to = requests[1];
        from = answers[0];
    }
    Answer ask(What what, int index, size_t bytes = 0, uint32_t value = 0, const cudaIpcMemHandle_t *handle = nullptr) {
        Request request = {what, index, value, bytes, {}};
        if (handle) request.handle = *handle;
        Answer answer = {};
        if (write(to, &request, sizeof request) != (ssize_t)sizeof request ||
            read(from, &answer, sizeof answer) != (ssize_t)sizeof answer) {
            printf("FAIL the importer ended\n");
            fflush(stdout);
            _exit(1);
        }
        return answer;
    }
    ~Importer() {
        close(to);
        waitpid(child, nullptr, 0);
    }
};

// ---- the exporter ----

struct Exporter {
    Importer other;
    bool ours, theirs;  // under the library: this process, the importer

    // Checks one block on the importer's side. Returns an empty text, or what is wrong.
    std::string look(uint32_t *block, size_t bytes, int index, bool must_open, bool *open) {
        uint32_t value = 0x1000 + index;
        cudaIpcMemHandle_t handle;
        fill<<<64, 256>>>(block, bytes / 4, value, 0);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaIpcGetMemHandle(&handle, block));
        Answer opened = other.ask(OPEN, index, 0, 0, &handle);
        *open = !opened.code;
        if (opened.code) return must_open ? "refused with " + std::to_string(opened.code) : "";
        if (!other.ask(HOLDS, index, bytes, value).yes) return "WRONG BYTES";
        other.ask(FILL, index, bytes, value + 0x100);
        if (!holds(block, bytes, value + 0x100)) return "the importer's writes went elsewhere";
        Answer range = other.ask(RANGE, index);
        printf("time: %zu B, block %d: range code %d, begins %lld B before it, %zu B\n", bytes, index, range.code, range.offset, range.bytes);
        bool short_range = range.offset + (long long)bytes > (long long)range.bytes;
        if (theirs && !range.code && short_range) return "too short a range";
        Answer again = other.ask(OPEN, index, 0, 0, &handle);
        if (again.code || !again.yes) return "a second open differs";
        if (other.ask(CLOSE, index).code) return "the first close failed";
        if (!other.ask(HOLDS, index, bytes, value + 0x100).yes) return "closed too early";
        return "";
    }

    // Frees the blocks while they are mapped, and writes memory of the same size at once.
    void reuse(uint32_t **blocks, size_t bytes, bool asynchronously) {
        uint32_t *next[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) CHECK(asynchronously ? cudaFreeAsync(blocks[i], 0) : cudaFree(blocks[i]));
        CHECK(cudaDeviceSynchronize());
        for (uint32_t *&block : next) {
            block = device_alloc(bytes);
            fill<<<64, 256>>>(block, bytes / 4, B, 0);
        }
        CHECK(cudaDeviceSynchronize());
        for (uint32_t *block : next) CHECK(cudaFree(block));
    }

    void run(bool asynchronously) {
        uint32_t *early[std::size(SIZES)][2], *blocks[BLOCKS];
        for (size_t size = 0; size < std::size(SIZES); size++)
            for (uint32_t *&block : early[size]) block = device_alloc(SIZES[size]);
        for (size_t size = 0; size < std::size(SIZES); size++) {
            size_t bytes = SIZES[size];
            std::string wrong;
            bool open[BLOCKS];
            cudaIpcMemHandle_t handles[BLOCKS];
            blocks[0] = early[size][0], blocks[1] = early[size][1], blocks[LATE] = device_alloc(bytes);
            for (int i = 0; i < BLOCKS; i++) {
                // Only an importer without the library may be refused, and only for a block inside
                // a segment.
                bool must_open = !ours || theirs || (i == LATE && bytes > MIB);
                std::string found = look(blocks[i], bytes, i, must_open, &open[i]);
                if (!found.empty()) wrong += " FAIL block " + std::to_string(i) + ": " + found + ";";
                CHECK(cudaIpcGetMemHandle(&handles[i], blocks[i]));
            }
            reuse(blocks, bytes, asynchronously);
            bool promised = ours || bytes >= PAGE;
            for (int i = 0; i < BLOCKS; i++) {
                if (!open[i]) continue;
                bool kept = other.ask(HOLDS, i, bytes, 0x1100 + i).yes;
                printf("time: %zu B, block %d: the importer's bytes %s\n", bytes, i, kept ? "stay" : "CHANGE");
                if (!kept && promised) wrong += " FAIL block " + std::to_string(i) + ": the exporter wrote into it after its free;";
                if (other.ask(CLOSE, i).code) wrong += " FAIL the last close failed;";
                int late = other.ask(CLOSE, i).code, freed = other.ask(OPEN, i, 0, 0, &handles[i]).code;
                printf("time: %zu B, block %d: closed too often %d, handle of a freed block %d\n", bytes, i, late, freed);
                if (!late && theirs) wrong += " FAIL closed too often;";
                if (!freed) other.ask(CLOSE, i);
            }
            printf("%zu B:%s\n", bytes, wrong.empty() ? " ok" : wrong.c_str());
        }
    }
};

int export_blocks(const char *combination) {
    bool ours = combination[0] == 'w', theirs = combination[1] == 'w';
    bool library = getenv("IPC_LIBRARY") != nullptr;
    // The importer is started before this process has used CUDA.
    Exporter exporter{Importer(theirs), ours && library, theirs && library};
    load_kernels();
    exporter.run(combination[2] == 'a');
    fflush(stdout);
    return 0;
}

// ---- how the driver treats handles ----

int probe() {
    Importer other(false);
    load_kernels();
    auto dump = [](const char *what, const cudaIpcMemHandle_t &handle) {
        printf("time: %-16s", what);
        for (int i = 0; i < 64; i++) printf("%s%02x", i % 8 ? "" : " ", (unsigned char)handle.reserved[i]);
        printf("\n");
    };
    uint32_t *small = device_alloc(512), *next = device_alloc(512), *large = device_alloc(64 * MIB);
    cudaIpcMemHandle_t handle, changed;
    struct {
        const char *name;
        uint32_t *block;
    } places[] = {{"512 B", small}, {"512 B, next", next}, {"64 MiB", large}, {"inside it", large + PAGE / 4}};
    for (auto &place : places) {
        CHECK(cudaIpcGetMemHandle(&handle, place.block));
        dump(place.name, handle);
    }
    auto try_open = [&](const char *what) {
        int code = other.ask(OPEN, 0, 0, 0, &changed).code;
        printf("time: %s: open %d\n", what, code);
        if (!code) other.ask(CLOSE, 0);
        return code;
    };
    CHECK(cudaIpcGetMemHandle(&handle, large));
    auto ignored = [](int i) { return !((i >= 24 && i < 28) || (i >= 32 && i < 37) || (i >= 48 && i < 56)); };
    auto change = [&](const char *what, auto which, auto how) {
        changed = handle;
        for (int i = 0; i < 64; i++)
            if (which(i)) changed.reserved[i] = how(changed.reserved[i]);
        return try_open(what);
    };
    auto zero = [](char) { return (char)0; };
    auto invert = [](char byte) { return (char)~byte; };
    auto used = [](int i) { return (i >= 37 && i < 48) || i >= 56; };
    change("unchanged", [](int) { return false; }, zero);
    // The library relies on these four results.
    int zeros = change("bytes 37-47 and 56-63 zero", used, zero);
    int noise = change("bytes 37-47 and 56-63 inverted", used, invert);
    int refused = change("bytes 48-55 inverted", [](int i) { return i >= 48 && i < 56; }, invert);
    change("all ignored bytes inverted", ignored, invert);
    change("all ignored bytes zero", ignored, zero);
    void *pooled;
    int capable[2] = {};
    CHECK(cudaMallocAsync(&pooled, 4096, 0));
    CUdeviceptr asked[] = {(CUdeviceptr)small, (CUdeviceptr)pooled};
    for (int i = 0; i < 2; i++) CHECK_DRIVER(cuPointerGetAttribute(&capable[i], CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, asked[i]));
    printf("legacy IPC: cudaMalloc %d, cudaMallocAsync %d, its handle %d\n", capable[0], capable[1], (int)cudaIpcGetMemHandle(&changed, pooled));
    cudaGetLastError();
    void *address = nullptr;
    printf("time: open in the exporter itself: %d\n", (int)cudaIpcOpenMemHandle(&address, handle, cudaIpcMemLazyEnablePeerAccess));
    cudaGetLastError();
    bool good = !zeros && !noise && refused;
    printf("handles: %s\n", good ? "as the library expects" : "FAIL, the library must not mark handles so");
    return 0;
}

int main(int count, char **arguments) {
    std::string role = count > 1 ? arguments[1] : "";
    watchdog("ipc", 110);
    if (role == "import") return import_blocks();
    if (role == "export") return export_blocks(arguments[2]);
    if (role == "probe") return probe();
    if (const char *path = getenv("LD_PRELOAD")) setenv("IPC_LIBRARY", path, 1);
    // w: with the library, o: without it, for exporter and importer; and how the exporter frees.
    for (const char *combination : {"wws", "wos", "ows", "oos", "wwa"}) {
        printf("exporter %s, importer %s, %s\n", combination[0] == 'w' ? "with" : "without", combination[1] == 'w' ? "with" : "without",
               combination[2] == 'a' ? "cudaFreeAsync" : "cudaFree");
        fflush(stdout);
        int status = 0;
        waitpid(start("export", combination, combination[0] == 'w', -1, -1), &status, 0);
        if (status) printf("FAIL the exporter ended with %d\n", status);
    }
    return 0;
}
