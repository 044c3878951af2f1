//! A program as data: lines, each an operation of one thread on numbered slots.
//!
//! An operation whose slots are empty is skipped, so any subset of the lines is a program.

macro_rules! operations {
    ($($op:ident = $name:literal ($($argument:ident)*);)+) => {
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        pub enum Op { $($op,)+ }

        impl Op {
            pub const ALL: &[Op] = &[$(Op::$op,)+];

            pub fn name(self) -> &'static str {
                match self { $(Op::$op => $name,)+ }
            }

            /// Names of the operation's numbers, for the reader and for the shrinker.
            pub fn arguments(self) -> &'static [&'static str] {
                match self { $(Op::$op => &[$(stringify!($argument),)*],)+ }
            }
        }
    };
}

operations! {
    // Between these two lines the threads run freely, each on its own slots.
    Together = "together" ();
    Joined = "joined" ();
    ThreadEnd = "thread_end" ();

    Init = "init" ();
    CtxCreate = "ctx_create" (ctx);
    CtxSet = "ctx_set" (ctx);
    CtxDestroy = "ctx_destroy" (ctx);
    CtxReset = "ctx_reset" ();
    CtxSync = "ctx_sync" ();
    CtxPush = "ctx_push" (ctx);
    CtxPop = "ctx_pop" ();
    // On the second device, if there is one; kernels of all devices may then access its memory.
    CtxBeyond = "ctx_beyond" (ctx);
    // References to the primary context: take one, release one of the thread's own, release all.
    RefTake = "ref_take" ();
    RefGive = "ref_give" ();
    RefGiveAll = "ref_give_all" ();
    // Another thread takes and releases a reference, over and over, beside all that follows, until
    // it is stopped.
    RefStorm = "ref_storm" (on);
    PrimaryFlags = "primary_flags" (flags);
    // The primary context of the second device ends with the last thread that has taken it.
    PrimaryTake = "primary_take" (ctx);
    PrimaryGive = "primary_give" (ctx how);
    CtxAttach = "ctx_attach" (ctx);
    CtxDetach = "ctx_detach" (ctx how);
    // The thread does nothing for this many milliseconds.
    Rest = "rest" (ms);
    // No context is current.
    CtxNone = "ctx_none" ();
    // A part of the primary context.
    GreenCreate = "green_create" (ctx);

    StreamCreate = "stream_create" (stream flags priority);
    StreamDestroy = "stream_destroy" (stream);
    StreamSync = "stream_sync" (stream);
    StreamQuery = "stream_query" (stream);
    EventCreate = "event_create" (event flags);
    EventDestroy = "event_destroy" (event);
    EventRecord = "event_record" (event stream);
    EventWait = "event_wait" (stream event);
    EventRecordFlags = "event_record_flags" (event stream);
    EventSync = "event_sync" (event);
    EventQuery = "event_query" (event);
    EventElapsed = "event_elapsed" (event event);
    CtxRecord = "ctx_record" (event);
    CtxWait = "ctx_wait" (event);

    Alloc = "alloc" (block bytes);
    AllocAsync = "alloc_async" (block bytes stream);
    AllocPool = "alloc_pool" (block bytes pool stream);
    AllocPitch = "alloc_pitch" (block bytes height);
    AllocManaged = "alloc_managed" (block bytes);
    AllocVirtual = "alloc_virtual" (block bytes);
    Revoke = "revoke" (block);
    Free = "free" (block);
    FreeAsync = "free_async" (block stream);
    ArrayCreate = "array_create" (array width height);
    ArrayDestroy = "array_destroy" (array);
    PoolCreate = "pool_create" (pool);
    PoolDestroy = "pool_destroy" (pool);
    PoolTrim = "pool_trim" (pool bytes);
    PoolKeep = "pool_keep" (pool bytes);
    PoolHolds = "pool_holds" (pool attribute bytes);
    HostAlloc = "host_alloc" (host bytes flags);
    HostRegister = "host_register" (host);
    HostUnregister = "host_unregister" (host);
    HostPlain = "host_plain" (host bytes);
    HostFree = "host_free" (host);
    // Queries the address of host memory directly after it was freed.
    HostGone = "host_gone" ();
    TextureCreate = "texture_create" (texture kind slot);
    TextureDestroy = "texture_destroy" (texture);
    ModuleLoad = "module_load" (module);
    ModuleUnload = "module_unload" (module);

    Fill = "fill" (block stream value delay how);
    Memset = "memset" (block stream byte how);
    Copy = "copy" (block block stream delay how);
    Add = "add" (block block stream delay);
    FillArray = "fill_array" (array block stream);
    ReadArray = "read_array" (block array stream);
    ToHost = "to_host" (host block stream delay how);
    FillHost = "fill_host" (host stream value delay how);
    FromHost = "from_host" (block host stream delay how);
    Nothing = "nothing" (stream);
    Say = "say" (stream value delay);
    Spin = "spin" (stream flag how);
    // The kernel finds the flag's address in the block.
    SpinFound = "spin_found" (stream flag block);
    Raise = "raise" (flag how stream);
    WriteValue = "write_value" (block stream value how);
    HostFunction = "host_function" (stream host value how);
    HostRequest = "host_request" (stream what block);
    // A kernel stores the address of host memory in device memory, and another one finds it there.
    Keep = "keep" (host stream how);
    FillFound = "fill_found" (host stream value delay);

    CaptureBegin = "capture_begin" (stream mode);
    CaptureEnd = "capture_end" (stream graph);
    CaptureStatus = "capture_status" (stream);
    CaptureMode = "capture_mode" (mode);
    GraphBuild = "graph_build" (graph block block value how);
    Instantiate = "instantiate" (exec graph);
    // The same call also uploads the graph on this stream.
    InstantiateUploaded = "instantiate_uploaded" (exec graph stream);
    ExecSet = "exec_set" (exec block value);
    Upload = "upload" (exec stream);
    Launch = "launch" (exec stream);
    ExecUpdate = "exec_update" (exec graph);
    ExecDestroy = "exec_destroy" (exec);
    GraphClone = "graph_clone" (graph graph);
    GraphDestroy = "graph_destroy" (graph);

    Read = "read" (block);
    HostRead = "host_read" (host);
    HostWrite = "host_write" (host value);
    Range = "range" (block offset);
    Attribute = "attribute" (block attribute offset);
    HostAttribute = "host_attribute" (host attribute);
    MemoryHas = "memory_has" (bytes);
    Answers = "answers" ();
    HostMapped = "host_mapped" (host);
    GraphMemory = "graph_memory" (attribute);
    Access = "access" (block);

    // Calls that the driver refuses, and calls that it fails for a while.
    Wrong = "wrong" (what);
    Fault = "fault" (what);
    FaultsOver = "faults_over" ();
}

impl Op {
    pub fn named(name: &str) -> Option<Op> {
        Op::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// Whether the operation is a query whose answer may depend on time: "not ready" never counts
    /// as a difference.
    pub fn asks(self) -> bool {
        matches!(self, Op::StreamQuery | Op::EventQuery | Op::EventElapsed)
    }

    /// Whether the answer depends on which of several threads was first.
    pub fn competes(self) -> bool {
        self == Op::HostRegister
    }

    /// Whether the operation requests memory: the request may be refused, and its slot then stays
    /// empty.
    pub fn requests(self) -> bool {
        matches!(
            self,
            Op::Alloc
                | Op::AllocAsync
                | Op::AllocPool
                | Op::AllocPitch
                | Op::AllocManaged
                | Op::AllocVirtual
                | Op::ArrayCreate
                | Op::HostAlloc
                | Op::CtxCreate
                | Op::CtxBeyond
        )
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    pub thread: u8,
    pub op: Op,
    pub args: Vec<u64>,
}

impl Line {
    pub fn arg(&self, index: usize) -> u64 {
        self.args.get(index).copied().unwrap_or(0)
    }
}

#[derive(Clone, Default, Debug)]
pub struct Program {
    pub theme: String,
    pub seed: u64,
    /// Device memory for which the program is made; 0 if it does not matter.
    pub memory_mb: u64,
    pub devices: u64,
    pub lines: Vec<Line>,
}

impl Program {
    /// Whether the program tests memory that runs out.
    pub fn wants_scarcity(&self) -> bool {
        wants_scarcity(&self.theme)
    }

    /// Whether the program has threads besides the main one.
    pub fn has_threads(&self) -> bool {
        self.lines.iter().any(|line| line.thread != 0)
    }
}

/// Whether programs of this theme test memory that runs out.
pub fn wants_scarcity(theme: &str) -> bool {
    ["pressure", "beside", "references_scarce", "uploads"].contains(&theme)
}

/// Maximum number of threads of a program at once. Thread 0 is the main one.
pub const THREADS_MAX: usize = 6;
