//! Purpose of the memory of a row: the table of all components, how each is known, and how it
//! counts.

/// Purpose of the memory of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Component {
    CacheHeld,
    /// Freed memory that a stream may still use.
    CacheWaiting,
    CacheFree,
    Linear,
    Arrays,
    Virtual,
    PoolsHeld,
    PoolsFree,
    Graphs,
    /// Until it is reconciled: all that was in use on the device when the first context had been
    /// created.
    Context,
    /// The driver's own memory, taken by calls that load code, by first launches, by limits, and
    /// for objects.
    Modules,
    Launches,
    Limits,
    Objects,
    LocalMemory,
    MallocHeap,
    PrintfBuffer,
    GraphNodes,
    Managed,
    Pinned,
    /// Memory that the program has freed, kept for its next request.
    PinnedFree,
}

/// How the bytes of a row are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Added up from the calls of the program.
    Counted,
    /// Reported by the driver.
    Asked,
    /// Difference of the bytes in use, at two times or of several processes.
    Difference,
}

/// How a row relates to the sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The row is added.
    Sum,
    /// The row is an upper bound of a part of the rest: the driver reserves the memory when a
    /// kernel needs it.
    Rest,
    /// The memory is not known to be on the device.
    Informational,
}

macro_rules! components {
    ($($component:ident = $word:literal, $title:literal, $method:ident, $place:ident;)*) => {
        impl Component {
            pub const ALL: &'static [Component] = &[$(Component::$component,)*];

            /// Returns the name in JSON and in snapshots.
            pub fn word(self) -> &'static str {
                match self { $(Component::$component => $word,)* }
            }

            /// Returns the description for people.
            pub fn title(self) -> &'static str {
                match self { $(Component::$component => $title,)* }
            }

            pub fn method(self) -> Method {
                match self { $(Component::$component => Method::$method,)* }
            }

            pub fn place(self) -> Place {
                match self { $(Component::$component => Place::$place,)* }
            }
        }
    };
}

components! {
    CacheHeld = "cache_held", "cache: held by the program", Counted, Sum;
    CacheWaiting = "cache_waiting", "cache: freed, a stream may still use it", Counted, Sum;
    CacheFree = "cache_free", "cache: free", Counted, Sum;
    Linear = "linear", "driver: linear and pitched memory", Counted, Sum;
    Arrays = "arrays", "driver: arrays", Counted, Sum;
    Virtual = "virtual", "driver: physical memory for mappings", Counted, Sum;
    PoolsHeld = "pools_held", "driver's pools: held by the program", Counted, Sum;
    PoolsFree = "pools_free", "driver's pools: free", Asked, Sum;
    Graphs = "graphs", "graphs: memory nodes", Asked, Sum;
    Context = "context", "first context, if other processes have not changed", Difference, Sum;
    Modules = "modules", "loading of modules and kernels", Difference, Sum;
    Launches = "launches", "first launches of kernels: their code, local memory, heaps", Difference, Sum;
    Limits = "limits", "heaps and local memory set by cuCtxSetLimit", Difference, Sum;
    Objects = "objects", "creation of streams and graphs", Difference, Sum;
    LocalMemory = "local_memory", "local memory of kernels", Asked, Rest;
    MallocHeap = "malloc_heap", "heap of malloc in kernels", Asked, Rest;
    PrintfBuffer = "printf_buffer", "buffer of printf in kernels", Asked, Rest;
    GraphNodes = "graph_nodes", "memory nodes of graphs, which may share memory", Counted, Informational;
    Managed = "managed", "managed memory, on any device or the host", Counted, Informational;
    Pinned = "pinned", "pinned and registered host memory", Counted, Informational;
    PinnedFree = "pinned_free", "pinned host memory, cached: free", Counted, Informational;
}

impl Component {
    /// Whether calls took the memory, measured as the difference before and after.
    pub(super) fn is_taken(self) -> bool {
        self.method() == Method::Difference && self != Component::Context
    }

    pub fn of_word(word: &str) -> Option<Component> {
        Component::ALL.iter().copied().find(|component| component.word() == word)
    }
}

impl Method {
    pub fn word(self) -> &'static str {
        match self {
            Method::Counted => "counted",
            Method::Asked => "asked",
            Method::Difference => "difference",
        }
    }
}

impl Place {
    pub fn word(self) -> &'static str {
        match self {
            Place::Sum => "sum",
            Place::Rest => "rest",
            Place::Informational => "beside",
        }
    }
}
