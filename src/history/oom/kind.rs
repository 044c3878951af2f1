//! The kind of memory that a failed call requested.

use cachealloc_text::bytes;

/// Kind of memory that a failed call requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OomKind {
    Linear,
    Pitched,
    Managed,
    Pooled,
    Physical,
    Array,
    Mapping,
    PinnedHost,
    RegisteredHost,
    PhysicalHost,
    Code,
    Graph,
    Launch,
    Transfer,
    Context,
    Stream,
    Event,
    Import,
    Other,
}

/// Where the requested memory would have been.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OomPlace {
    /// On the device, with the size that the call names.
    Device,
    /// On the device, with a size that the driver chooses.
    DriversOwn,
    Host,
    /// The call names nothing from which the place follows.
    Unknown,
}

macro_rules! kinds {
    ($($kind:ident = $word:literal, $title:literal, $place:ident;)*) => {
        impl OomKind {
            pub const ALL: &'static [OomKind] = &[$(OomKind::$kind,)*];

            /// Word used in snapshots.
            pub fn word(self) -> &'static str {
                match self { $(OomKind::$kind => $word,)* }
            }

            /// Text for people.
            pub fn title(self) -> &'static str {
                match self { $(OomKind::$kind => $title,)* }
            }

            pub fn place(self) -> OomPlace {
                match self { $(OomKind::$kind => OomPlace::$place,)* }
            }
        }
    };
}

kinds! {
    Linear = "linear", "linear memory", Device;
    Pitched = "pitched", "pitched memory", Device;
    Managed = "managed", "managed memory", Unknown;
    Pooled = "pooled", "pool memory", Device;
    Physical = "physical", "physical memory", Device;
    Array = "array", "an array", Device;
    Mapping = "mapping", "address space or a mapping", Unknown;
    PinnedHost = "pinned_host", "pinned host memory", Host;
    RegisteredHost = "registered_host", "registered host memory", Host;
    PhysicalHost = "physical_host", "physical host memory", Host;
    Code = "code", "code", DriversOwn;
    Graph = "graph", "a graph", DriversOwn;
    Launch = "launch", "a launch", DriversOwn;
    Transfer = "transfer", "a copy or a fill", DriversOwn;
    Context = "context", "a context", DriversOwn;
    Stream = "stream", "a stream", DriversOwn;
    Event = "event", "an event", DriversOwn;
    Import = "import", "memory of another process or API", Unknown;
    Other = "other", "internal memory", Unknown;
}

impl OomKind {
    pub fn of_word(word: &str) -> Option<OomKind> {
        OomKind::ALL.iter().copied().find(|kind| kind.word() == word)
    }

    /// Formats the amount: `200 MiB of physical memory` or `200 MiB for an array`. Returns only the
    /// title if the amount is unknown.
    pub fn amount(self, asked_bytes: Option<u64>) -> String {
        let title = self.title();
        let has_article = title.starts_with("a ") || title.starts_with("an ");
        match asked_bytes.map(bytes) {
            None => title.to_string(),
            Some(asked) if self == OomKind::Other => asked,
            Some(asked) if has_article => format!("{asked} for {title}"),
            Some(asked) => format!("{asked} of {title}"),
        }
    }

    /// Returns the kind that a call requests, by the function's base name in the driver's look-up.
    pub fn of_function(base: &str) -> OomKind {
        let found = BY_NAME.iter().find(|(begin, _)| base.starts_with(begin));
        found.map_or(OomKind::Other, |(_, kind)| *kind)
    }
}

/// Kinds by prefix of the function's name. The first match counts.
const BY_NAME: [(&str, OomKind); 44] = [
    ("cuMemAllocPitch", OomKind::Pitched),
    ("cuMemAllocManaged", OomKind::Managed),
    ("cuMemAllocHost", OomKind::PinnedHost),
    ("cuMemAllocAsync", OomKind::Pooled),
    ("cuMemAllocFromPoolAsync", OomKind::Pooled),
    ("cuMemAlloc", OomKind::Linear),
    ("cuMemHostAlloc", OomKind::PinnedHost),
    ("cuMemHostRegister", OomKind::RegisteredHost),
    ("cuMemCreate", OomKind::Physical),
    ("cuMemImport", OomKind::Import),
    ("cuMemPool", OomKind::Import),
    ("cuMemAddressReserve", OomKind::Mapping),
    ("cuMemMap", OomKind::Mapping),
    ("cuMemSetAccess", OomKind::Mapping),
    ("cuMulticast", OomKind::Mapping),
    ("cuLogicalEndpoint", OomKind::Mapping),
    ("cuArray", OomKind::Array),
    ("cuMipmappedArray", OomKind::Array),
    ("cuExternalMemory", OomKind::Import),
    ("cuImportExternal", OomKind::Import),
    ("cuIpc", OomKind::Import),
    ("cuGraphics", OomKind::Import),
    ("cuGraph", OomKind::Graph),
    ("cuStreamBeginCapture", OomKind::Graph),
    ("cuStreamEndCapture", OomKind::Graph),
    ("cuLaunch", OomKind::Launch),
    ("cuModule", OomKind::Code),
    ("cuLibrary", OomKind::Code),
    ("cuKernel", OomKind::Code),
    ("cuFunc", OomKind::Code),
    ("cuLink", OomKind::Code),
    ("cuOccupancy", OomKind::Code),
    ("cuCtxSetLimit", OomKind::Other),
    ("cuMemcpy", OomKind::Transfer),
    ("cuMemset", OomKind::Transfer),
    ("cuMemPrefetch", OomKind::Transfer),
    ("cuEvent", OomKind::Event),
    ("cuStream", OomKind::Stream),
    ("cuGreenCtxStreamCreate", OomKind::Stream),
    ("cuDevicePrimaryCtxRetain", OomKind::Context),
    ("cuCtxCreate", OomKind::Context),
    ("cuGreenCtxCreate", OomKind::Context),
    ("cuGLCtxCreate", OomKind::Context),
    ("cuVDPAUCtxCreate", OomKind::Context),
];
