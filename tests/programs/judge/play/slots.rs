//! Objects that a program holds, in numbered slots. A slot whose context has ended counts as empty.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::kept::AddressTable;
use super::kernels::Kernels;

/// A context, and what the player has loaded there.
pub struct Context {
    pub handle: u64,
    pub kernels: Kernels,
    pub device: i32,
    /// Whether this is a green context of the primary one.
    pub green: bool,
    /// Whether threads take and release this primary context: it is then not destroyed explicitly.
    pub shared: bool,
    /// How often threads have attached to the context.
    pub attached: AtomicUsize,
    pub gone: AtomicBool,
}

pub type Ctx = Arc<Context>;

impl Context {
    pub fn new(handle: u64, kernels: Kernels, device: i32) -> Context {
        let (gone, attached) = (AtomicBool::new(false), AtomicUsize::new(0));
        Context { handle, kernels, device, green: false, shared: false, attached, gone }
    }

    pub fn alive(&self) -> bool {
        !self.gone.load(Ordering::SeqCst)
    }

    pub fn bury(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }
}

/// A capture, with what the player needs to know of it: the blocks that a launch of its graph
/// writes.
#[derive(Default)]
pub struct Capture {
    pub over: AtomicBool,
    pub fills: Mutex<Vec<Filled>>,
    /// Held as long as the capture, its graph or anything made from the graph exists.
    pub life: Mutex<Option<Life>>,
}

pub type Life = Arc<()>;

impl Capture {
    pub fn begun() -> Arc<Capture> {
        let capture = Capture::default();
        *lock(&capture.life) = Some(Life::default());
        Arc::new(capture)
    }
}

/// Whether an operation has filled a block, which may then be read.
pub type Filled = Arc<AtomicBool>;

#[derive(Clone)]
pub struct Stream {
    pub handle: u64,
    pub ctx: Ctx,
    pub capture: Arc<Mutex<Option<Arc<Capture>>>>,
}

impl Stream {
    pub fn capture(&self) -> Option<Arc<Capture>> {
        let capture = lock(&self.capture).clone();
        capture.filter(|capture| !capture.over.load(Ordering::SeqCst))
    }

    /// Records that work on this stream fills it: now, or when the graph is launched.
    pub fn fills(&self, what: &Filled) {
        match self.capture() {
            Some(capture) => lock(&capture.fills).push(what.clone()),
            None => what.store(true, Ordering::SeqCst),
        }
    }
}

#[derive(Clone)]
pub struct Event {
    pub handle: u64,
    pub ctx: Ctx,
    pub captured: Option<Arc<Capture>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockKind {
    Plain,
    Managed,
    Ordered,
    /// A mapping, with the handle of its memory and its whole size.
    Virtual(u64, usize),
}

#[derive(Clone)]
pub struct Block {
    pub address: u64,
    pub bytes: usize,
    pub kind: BlockKind,
    /// The part that is written and read: its offset and its length.
    pub part: (u64, u64),
    pub filled: Filled,
    pub ctx: Ctx,
    /// Whether access was removed.
    pub closed: Arc<AtomicBool>,
    /// The captures that have used the block.
    pub graphs: Arc<Mutex<Vec<Weak<()>>>>,
}

impl Block {
    /// Records that the stream's work uses the block.
    pub fn used(&self, stream: &Stream) {
        let Some(capture) = stream.capture() else { return };
        if let Some(life) = &*lock(&capture.life) {
            lock(&self.graphs).push(Arc::downgrade(life));
        }
    }

    pub fn was_captured(&self) -> bool {
        !lock(&self.graphs).is_empty()
    }

    /// Whether a graph that still exists uses the block.
    pub fn is_named(&self) -> bool {
        lock(&self.graphs).iter().any(|life| life.strong_count() > 0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostKind {
    Pinned,
    /// Ordinary memory, registered or not.
    Plain,
}

#[derive(Clone)]
pub struct Host {
    pub address: u64,
    pub bytes: usize,
    pub kind: HostKind,
    pub part: (u64, u64),
    pub filled: Filled,
    pub ctx: Ctx,
    pub registered: Arc<AtomicBool>,
    /// A texture over the memory; 0 until the first is needed.
    pub texture: Arc<Mutex<u64>>,
    /// The device memory in which a kernel has stored the address.
    pub table: Arc<Mutex<Option<AddressTable>>>,
}

#[derive(Clone)]
pub struct Array {
    pub handle: u64,
    pub filled: Filled,
    pub ctx: Ctx,
}

/// A graph or an executable graph, and the blocks that its launch writes.
#[derive(Clone)]
pub struct Graph {
    pub handle: u64,
    pub fills: Vec<Filled>,
    pub life: Option<Life>,
    /// A fill node in the graph, whose arguments may be changed.
    pub fill: Option<u64>,
    pub ctx: Ctx,
}

/// Anything else: pools, textures, modules.
#[derive(Clone)]
pub struct Thing {
    pub handle: u64,
    pub ctx: Ctx,
}

pub trait Owned {
    fn owner(&self) -> &Ctx;
}

macro_rules! owned {
    ($($kind:ty),+) => { $(impl Owned for $kind { fn owner(&self) -> &Ctx { &self.ctx } })+ };
}
owned!(Stream, Event, Block, Host, Array, Graph, Thing);

impl Owned for Ctx {
    fn owner(&self) -> &Ctx {
        self
    }
}

pub struct Table<T> {
    slots: Vec<Mutex<Option<T>>>,
    /// Former contents of slots: of those reused after their context had ended, or set aside.
    before: Mutex<Vec<T>>,
}

impl<T: Owned + Clone> Table<T> {
    pub fn new(slots: usize) -> Table<T> {
        let slots = (0..slots).map(|_| Mutex::new(None)).collect();
        Table { slots, before: Mutex::default() }
    }

    pub fn get(&self, slot: u64) -> Option<T> {
        let found = self.slots.get(slot as usize).and_then(|slot| lock(slot).clone());
        found.filter(|found| found.owner().alive())
    }

    pub fn is_free(&self, slot: u64) -> bool {
        (slot as usize) < self.slots.len() && self.get(slot).is_none()
    }

    pub fn put(&self, slot: u64, thing: T) {
        let before = lock(&self.slots[slot as usize]).replace(thing);
        lock(&self.before).extend(before);
    }

    pub fn clear(&self, slot: u64) {
        *lock(&self.slots[slot as usize]) = None;
    }

    /// Empties the slot; what was there ends with the program.
    pub fn set_aside(&self, slot: u64) {
        let before = lock(&self.slots[slot as usize]).take();
        lock(&self.before).extend(before);
    }

    pub fn all(&self) -> Vec<T> {
        (0..self.slots.len() as u64).filter_map(|slot| self.get(slot)).collect()
    }

    /// Returns all entries, including those set aside or whose context has ended.
    pub fn ever(&self) -> Vec<T> {
        let now = self.slots.iter().filter_map(|slot| lock(slot).clone());
        now.chain(lock(&self.before).iter().cloned()).collect()
    }
}

pub struct Slots {
    pub contexts: Table<Ctx>,
    pub streams: Table<Stream>,
    pub events: Table<Event>,
    pub blocks: Table<Block>,
    pub hosts: Table<Host>,
    pub arrays: Table<Array>,
    pub pools: Table<Thing>,
    pub textures: Table<Thing>,
    pub modules: Table<Thing>,
    pub graphs: Table<Graph>,
    pub execs: Table<Graph>,
}

impl Slots {
    pub fn new() -> Slots {
        Slots {
            contexts: Table::new(16),
            streams: Table::new(128),
            events: Table::new(128),
            blocks: Table::new(256),
            hosts: Table::new(64),
            arrays: Table::new(16),
            pools: Table::new(8),
            textures: Table::new(16),
            modules: Table::new(8),
            graphs: Table::new(128),
            execs: Table::new(128),
        }
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
