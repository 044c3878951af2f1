//! The state of the simulated driver, under one lock.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};

use super::handles::Slab;
use crate::abi::{Code, Handle};
use crate::faults::{self, Fault};
use crate::model::contexts::context::Context;
use crate::model::contexts::event::Event;
use crate::model::contexts::module::Modules;
use crate::model::contexts::stream::Stream;
use crate::model::graphs::capture::Captures;
use crate::model::graphs::graph::Graphs;
use crate::model::memory::allocations::{Allocation, Memory};
use crate::model::memory::array::Array;
use crate::model::memory::backing::Backing;
use crate::model::memory::code::Object;
use crate::model::memory::foreign::Foreign;
use crate::model::memory::group::{Endpoints, Group};
use crate::model::memory::ipc::Imports;
use crate::model::memory::pool::Pool;
use crate::model::memory::vmm::Physical;
use crate::model::races::clock::{ChainSet, Chains, Clock, Epoch};
use crate::model::races::shadow::Shadow;
use crate::model::work::engine::Engine;
use crate::model::work::op::OpRef;
use crate::report::Report;

pub struct World {
    pub initialized: bool,
    pub engine: Engine,
    pub chains: Chains,
    pub shadow: Shadow,
    pub memory: Memory,
    pub host: Host,
    /// Clocks of the operations that set flags, by address: an operation that sees the flag knows
    /// them.
    pub flags: HashMap<u64, Clock>,
    pub threads: HashMap<u32, Thread>,
    pub contexts: Slab<Context>,
    /// Living contexts by ID, by which operations refer to their context.
    pub context_handles: HashMap<u64, Handle>,
    pub primaries: Vec<Primary>,
    pub streams: Slab<Stream>,
    pub events: Slab<Event>,
    pub modules: Modules,
    pub objects: HashMap<Handle, Object>,
    pub pools: Slab<Pool>,
    pub device_pools: Vec<DevicePools>,
    /// Pools of the host, of managed memory and of parts of devices, by kind of memory and by kind
    /// and number of its location.
    pub other_pools: HashMap<(u32, u32, i32), DevicePools>,
    /// Operations that gave live pool blocks to their owners, by address.
    pub pool_births: HashMap<u64, OpRef>,
    /// With `SIM_FREES_WAIT=0`: the operations for which frees would have waited.
    pub frees_not_waited_for: Vec<OpRef>,
    /// With `SIM_FREES_JUDGED`: the host's epoch and clock at a `cuMemFree` of pool memory, by
    /// allocation.
    pub judged_frees: HashMap<u64, (Epoch, Clock)>,
    /// Memory freed on a stream (an ID) that has not been synchronised with since.
    pub freed_in_order: Vec<(u64, Allocation)>,
    pub physical: Slab<Physical>,
    pub backing: Backing,
    pub arrays: Slab<Array>,
    pub textures: Slab<[u64; 8]>,
    /// Texture references of modules, with the address that each is bound to.
    pub texture_references: Slab<u64>,
    pub foreign: Foreign,
    pub multicasts: Slab<Group>,
    pub endpoints: Endpoints,
    /// Resources of graphics APIs.
    pub resources: Slab<u64>,
    pub graphs: Graphs,
    pub captures: Captures,
    pub ipc: HashMap<u64, u32>,
    pub imports: Imports,
    pub faults: Vec<Fault>,
    pub report: Report,
    /// Text that kernels have printed and that is not flushed yet.
    pub kernel_text: String,
    pub calls_count: u64,
    /// Threads inside a call that waits.
    pub waiters: usize,
    ids: u64,
}

/// The host as one participant. The simulation cannot see how threads of the program order
/// themselves, so it assumes that calls are ordered as they arrive.
#[derive(Default)]
pub struct Host {
    pub clock: Clock,
    pub chains: ChainSet,
}

/// One host thread.
#[derive(Default)]
pub struct Thread {
    /// Virtual clock of the thread: calls cost time in the thread that makes them, and so do waits.
    /// The GPU's clock may be ahead.
    pub ns: u64,
    pub contexts: Vec<Handle>,
    pub capture_mode: u32,
    /// Number of "not ready" answers in a row.
    pub polls: u32,
    /// Whether its last query reported the end of work for which no wait had been made. With more
    /// work, or a slower GPU, the result would have differed.
    pub news: bool,
}

#[derive(Default)]
pub struct Primary {
    pub context: Handle,
    pub retained: u32,
    pub flags: u32,
}

pub struct DevicePools {
    pub default: Handle,
    pub current: Handle,
}

pub struct Config {
    pub driver_version: i32,
    pub devices: usize,
    /// Number of the first device in the machine, as chosen by `CUDA_VISIBLE_DEVICES`.
    pub first_device: usize,
    /// Number of the machine: GPUs of different machines differ.
    pub machine: u64,
    /// Whether the devices are parts of a GPU.
    pub is_mig: bool,
    pub memory_bytes: u64,
    pub pitch_bytes: usize,
    /// Whether devices access pinned memory at different addresses than the host.
    pub is_disjoint: bool,
    /// Device memory of a context, besides its small page.
    pub context_bytes: u64,
    /// Device memory of a module.
    pub module_bytes: u64,
    /// Device memory of a function that is loaded into a context.
    pub kernel_bytes: u64,
    /// Additional device memory of the first launch in a context.
    pub local_bytes: u64,
    /// Device memory of a stream; an executable graph takes it twice.
    pub object_bytes: u64,
    /// Whether memory nodes get their memory with the first launch or upload.
    pub graph_memory_is_late: bool,
    /// Whether heaps of kernels take the memory of their limits.
    pub limits_take: bool,
    pub deadlock_ms: u64,
    pub idle_ms: u64,
    pub teardown_ms: u64,
    pub linger_us: u64,
    pub linger_seed: u64,
    /// Minimum duration of each piece of work.
    pub work_ns: u64,
    /// Whether the record of an untimed event takes that time, too.
    pub records_take_time: bool,
    /// Whether a plain free waits. If not, programs that rely on the wait fail.
    pub frees_wait: bool,
    /// Whether a plain free of stream-ordered memory before the end of its work is reported.
    pub frees_are_judged: bool,
    /// Whether the program may rely on nothing but waits.
    pub only_waits_tell: bool,
    /// Whether each poll in a row takes twice as long as the one before.
    pub polls_grow: bool,
    pub report: Option<String>,
    pub fail: String,
    pub pause: String,
    /// Symbol of a function that `cuGetProcAddress` does not find.
    pub lacks: String,
}

impl World {
    fn new(config: &Config) -> World {
        let mut pools = Slab::new(tag::POOL);
        let memory = Memory::new(config.devices, config.memory_bytes);
        let device_pools = (0..config.devices)
            .map(|device| {
                let default = pools.insert(Pool::new(device));
                DevicePools { default, current: default }
            })
            .collect();
        let mut report = Report::default();
        let faults = faults::parse(&config.fail).unwrap_or_else(|error| {
            report.problem(format!("sim: SIM_FAIL: {error}"));
            Vec::new()
        });
        World {
            initialized: false,
            engine: Engine::default(),
            chains: Chains::default(),
            shadow: Shadow::default(),
            memory,
            host: Host::default(),
            flags: HashMap::new(),
            threads: HashMap::new(),
            contexts: Slab::new(tag::CONTEXT),
            context_handles: HashMap::new(),
            primaries: (0..config.devices).map(|_| Primary::default()).collect(),
            streams: Slab::new(tag::STREAM),
            events: Slab::new(tag::EVENT),
            modules: Modules::default(),
            objects: HashMap::new(),
            pools,
            device_pools,
            other_pools: HashMap::new(),
            pool_births: HashMap::new(),
            frees_not_waited_for: Vec::new(),
            judged_frees: HashMap::new(),
            freed_in_order: Vec::new(),
            physical: Slab::new(tag::PHYSICAL),
            backing: Backing::default(),
            arrays: Slab::new(tag::ARRAY),
            textures: Slab::new(tag::TEXTURE),
            texture_references: Slab::new(tag::TEXTURE_REFERENCE),
            foreign: Foreign::default(),
            multicasts: Slab::new(tag::MULTICAST),
            endpoints: Endpoints::default(),
            resources: Slab::new(tag::RESOURCE),
            graphs: Graphs::default(),
            captures: Captures::default(),
            ipc: HashMap::new(),
            imports: Imports::default(),
            faults,
            report,
            kernel_text: String::new(),
            calls_count: 0,
            waiters: 0,
            ids: 0,
        }
    }

    /// Returns a number that was never used before, for IDs of contexts, streams and captures.
    pub fn fresh_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub fn error_of(&self, ctx: u64) -> Option<Code> {
        let handle = self.context_handles.get(&ctx)?;
        self.contexts.find(*handle)?.error
    }

    pub fn set_error(&mut self, ctx: u64, code: Code) {
        if let Some(handle) = self.context_handles.get(&ctx)
            && let Some(context) = self.contexts.find_mut(*handle)
        {
            context.error = Some(code);
        }
    }
}

/// Kinds of handles: the number is in the handle's upper bits.
pub mod tag {
    pub const CONTEXT: u64 = 0x51;
    pub const STREAM: u64 = 0x52;
    pub const EVENT: u64 = 0x53;
    pub const POOL: u64 = 0x54;
    pub const PHYSICAL: u64 = 0x55;
    pub const ARRAY: u64 = 0x56;
    pub const TEXTURE: u64 = 0x57;
    pub const MODULE: u64 = 0x58;
    pub const FUNCTION: u64 = 0x59;
    pub const GRAPH: u64 = 0x5A;
    pub const NODE: u64 = 0x5B;
    pub const EXECUTABLE: u64 = 0x5C;
    pub const USER_OBJECT: u64 = 0x5D;
    pub const TEXTURE_REFERENCE: u64 = 0x5E;
    pub const EXTERNAL: u64 = 0x5F;
    pub const SEMAPHORE: u64 = 0x60;
    pub const MULTICAST: u64 = 0x61;
    pub const RESOURCE: u64 = 0x62;
}

pub fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let number = |name: &str, default: u64| {
            std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
        };
        Config {
            driver_version: number("SIM_DRIVER_VERSION", 13_000) as i32,
            devices: number("SIM_DEVICES", 1) as usize,
            first_device: number("SIM_FIRST_DEVICE", 0) as usize,
            machine: number("SIM_MACHINE", 0),
            is_mig: number("SIM_MIG", 0) != 0,
            memory_bytes: number("SIM_MEMORY_MB", 1024) << 20,
            pitch_bytes: number("SIM_PITCH_BYTES", 512) as usize,
            is_disjoint: number("SIM_DISJOINT", 0) != 0,
            context_bytes: number("SIM_CONTEXT_MB", 2) << 20,
            module_bytes: number("SIM_MODULE_MB", 0) << 20,
            kernel_bytes: number("SIM_KERNEL_MB", 0) << 20,
            local_bytes: number("SIM_LOCAL_MB", 0) << 20,
            object_bytes: number("SIM_OBJECT_MB", 0) << 20,
            graph_memory_is_late: number("SIM_GRAPH_MEMORY_LATE", 0) != 0,
            limits_take: number("SIM_LIMITS_TAKE", 0) != 0,
            deadlock_ms: number("SIM_DEADLOCK_MS", 3_000),
            idle_ms: number("SIM_IDLE_MS", 250),
            teardown_ms: number("SIM_TEARDOWN_MS", 0),
            linger_us: number("SIM_LINGER_US", 0),
            linger_seed: number("SIM_LINGER_SEED", 0),
            work_ns: number("SIM_WORK_NS", 0),
            records_take_time: number("SIM_RECORDS_TAKE_TIME", 0) != 0,
            frees_wait: number("SIM_FREES_WAIT", 1) != 0,
            polls_grow: number("SIM_POLLS_GROW", 0) != 0,
            frees_are_judged: number("SIM_FREES_JUDGED", 0) != 0,
            only_waits_tell: number("SIM_ONLY_WAITS_TELL", 0) != 0,
            report: std::env::var("SIM_REPORT").ok(),
            fail: std::env::var("SIM_FAIL").unwrap_or_default(),
            pause: std::env::var("SIM_PAUSE_MS").unwrap_or_default(),
            lacks: std::env::var("SIM_LACKS").unwrap_or_default(),
        }
    })
}

pub fn lock() -> MutexGuard<'static, World> {
    static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
    let world = WORLD.get_or_init(|| Mutex::new(World::new(config())));
    world.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Signalled after every change for which a thread may be waiting.
pub fn changed() -> &'static Condvar {
    static CHANGED: Condvar = Condvar::new();
    &CHANGED
}
