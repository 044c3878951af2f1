//! Expands `functions.csv`, the one list of driver functions, into Rust: a constant per function,
//! the table of their properties, and one exported symbol for each function that has a hook.
//!
//! A function has a hook when its row names one, or when its class or a column requires the default
//! treatment (`hooks::common`): it submits or orders work, may be retried after an out-of-memory
//! error, or ends the life of something that work in flight may use.

#[path = "build/glibc.rs"]
mod glibc;

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

struct Row<'a> {
    symbol: &'a str,
    base: &'a str,
    version: i32,
    per_thread: &'a str,
    class: &'a str,
    submits_on: &'a str,
    oom_retry: bool,
    host_memory: bool,
    teardown: bool,
    /// The types of the arguments, or `None` if the signature is unknown.
    arguments: Option<Vec<String>>,
    hook: &'a str,
    not_caching: &'a str,
    launches: &'a str,
    unordered: bool,
    goes_on: bool,
    node: &'a str,
}

impl Row<'_> {
    /// Returns the place of the stream to which the call submits, as `functions::StreamAt`.
    fn stream_at(&self) -> String {
        let submits = matches!(self.class, "submit" | "order" | "own");
        match self.submits_on {
            // Only if a capture is possible, which it never is on the legacy default stream.
            "" | "legacy" | "ptds" => "Nowhere".into(),
            _ if !submits => "Nowhere".into(),
            "struct:CUlaunchConfig.hStream" => "Inside { argument: 0, offset: 32 }".into(),
            "struct:CUDA_LAUNCH_PARAMS[].hStream" => "Inside { argument: 0, offset: 40 }".into(),
            "struct:*pStream" => "Inside { argument: 2, offset: 0 }".into(),
            text => {
                let index = text.strip_prefix("arg:").and_then(|index| index.parse::<u8>().ok());
                format!("Argument({})", index.expect("functions.csv: unknown submits_on"))
            }
        }
    }

    /// Returns the stream to which the call submits, as `before_submit!` in `exports.rs` reads it.
    fn submits_to(&self) -> String {
        let per_thread = self.per_thread == "1";
        match (self.class, self.submits_on) {
            ("submit" | "order", _) if self.unordered => "any_stream".into(),
            ("submit" | "order" | "own", column) if column.starts_with("arg:") => {
                format!("argument a{} {per_thread}", &column["arg:".len()..])
            }
            ("submit", "struct:CUlaunchConfig.hStream") => format!("launch_config a0 {per_thread}"),
            ("submit", "legacy") => "legacy_stream".into(),
            ("submit" | "order", _) => "any_stream".into(),
            _ => String::new(),
        }
    }

    /// Returns what the export does around its hook, as `around_hook!` in `exports.rs` reads it.
    fn around_hook(&self) -> &'static str {
        match self.stream_at().as_str() {
            _ if self.class == "record" => "records",
            _ if self.submits_on == "legacy" => "submits_to_legacy",
            "Nowhere" => "nothing",
            _ if self.launches.starts_with("kernel") && self.submits_on.starts_with("arg:") => {
                "kernel"
            }
            _ if !self.launches.is_empty() => "launches",
            _ => "submits",
        }
    }

    /// Returns what the call launches, as `functions::Launches`.
    fn launches(&self) -> String {
        let Some((what, places)) = self.launches.split_once(':') else { return "None".into() };
        let places: Vec<_> = places.split(' ').collect();
        match (what, &places[..]) {
            ("graph", [handle]) => format!("Some(Launches::Graph {{ handle: {handle} }})"),
            ("kernel", [handle, params]) => format!(
                "Some(Launches::Kernel {{ handle: {handle}, params: {params}, extra: None }})"
            ),
            ("kernel", [handle, params, extra]) => format!(
                "Some(Launches::Kernel {{ handle: {handle}, params: {params}, extra: Some({extra}) }})"
            ),
            _ => panic!("functions.csv: unknown launches {:?}", self.launches),
        }
    }

    /// Returns what a node of the call references, as `functions::NodeReferences`.
    fn node(&self) -> &'static str {
        match self.node {
            "" => "Unknown",
            "nothing" => "Nothing",
            "addresses" => "Addresses",
            other => panic!("functions.csv: unknown node {other:?}"),
        }
    }

    /// Returns what the export does while the library does not cache, as `while_caching!` in
    /// `exports.rs` reads it.
    fn not_caching(&self) -> &'static str {
        match (self.hook, self.not_caching) {
            ("", "") | (_, "real") => "real",
            (_, "flush") => "flush",
            (_, "") => "hook",
            _ => panic!("functions.csv: unknown not_caching {:?}", self.not_caching),
        }
    }

    /// Returns where a success after a failure for lack of memory is noted, as `succeeded!` in
    /// `exports.rs` reads it. Copies and fills are too frequent for it.
    fn repeats_are_noted(&self) -> &'static str {
        let is_frequent = matches!(self.class, "own" | "submit");
        if self.oom_retry && !is_frequent { "here" } else { "elsewhere" }
    }

    fn hooked(&self) -> bool {
        let by_class = matches!(self.class, "submit" | "order");
        let wanted = !self.hook.is_empty() || by_class || self.oom_retry || self.teardown;
        wanted && self.arguments.is_some()
    }
}

fn main() {
    println!("cargo:rerun-if-changed=functions.csv");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build/glibc.rs");
    let text = fs::read_to_string("functions.csv").expect("cannot read functions.csv");
    let rows: Vec<Row> = text.lines().skip(1).map(parse).collect();
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let write =
        |name, code| fs::write(Path::new(&out).join(name), code).expect("OUT_DIR is writable");
    write("tables.rs", constants(&rows) + &table(&rows));
    write("exports.rs", exports(&rows));
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcachealloc.so");
    // The library uses its own definitions, even if the program or an earlier library exports the
    // same names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // The library is never unmapped, even if the program opens and closes it: the driver keeps
    // pointers to it, and threads end inside it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The library's constructor runs before any other: other libraries may need it in theirs
    // (`interpose::start`).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    glibc::link_against_old(Path::new(&out));
}

/// The last column is free text that may contain anything but a line break.
fn parse(line: &str) -> Row<'_> {
    let f: Vec<&str> = line.splitn(18, ',').collect();
    assert_eq!(f.len(), 18, "functions.csv: expected 18 columns in {line:?}");
    Row {
        symbol: f[0],
        base: f[1],
        version: f[2].parse().unwrap_or(0),
        per_thread: f[3],
        class: f[5],
        submits_on: f[6],
        oom_retry: f[7] == "1",
        host_memory: !f[8].is_empty(),
        teardown: f[9] == "1",
        arguments: types(f[10]),
        hook: f[11],
        not_caching: f[12],
        launches: f[13],
        unordered: f[14] == "1",
        goes_on: f[15] == "1",
        node: f[16],
    }
}

fn constants(rows: &[Row]) -> String {
    let mut code = String::from(
        "/// Index of each driver function in [`FUNCTIONS`].\n#[allow(non_upper_case_globals, dead_code)]\npub(crate) mod id {\n",
    );
    for (index, row) in rows.iter().enumerate() {
        writeln!(code, "    pub(crate) const {}: usize = {index};", row.symbol).unwrap();
    }
    writeln!(
        code,
        "}}\n/// Number of known driver functions.\npub(crate) const COUNT: usize = {};\n",
        rows.len()
    )
    .unwrap();
    code
}

fn table(rows: &[Row]) -> String {
    let mut code = String::from(
        "/// Every known driver function, in the order of `functions.csv`.\n\
         pub(crate) static FUNCTIONS: [Function; COUNT] = [\n",
    );
    let mut names = String::new();
    for (index, row) in rows.iter().enumerate() {
        let class = row.class[..1].to_uppercase() + &row.class[1..];
        assert!(row.symbol.starts_with(row.base), "functions.csv: {} is not so called", row.base);
        writeln!(
            code,
            "    Function {{ id: {index}, name: {}, symbol_bytes: {}, base_bytes: {}, version: {}, \
             per_thread: {}, class: Class::{class}, stream: StreamAt::{}, launches: {}, \
             node: NodeReferences::{}, oom_retry: {}, goes_on: {}, host_memory: {}, teardown: {} }},",
            names.len(), row.symbol.len(), row.base.len(), row.version, row.per_thread == "1",
            row.stream_at(), row.launches(), row.node(), row.oom_retry, row.goes_on,
            row.host_memory, row.teardown,
        )
        .unwrap();
        names = names + row.symbol + "\0";
    }
    writeln!(code, "];\n/// The names, each with a final zero.\nstatic NAMES: &str = {names:?};")
        .unwrap();
    code + &door_distances(rows)
}

/// The distance from each word of a table to the door of that function, which the assembly of
/// `exports` defines; 0 for a function without a hook.
fn door_distances(rows: &[Row]) -> String {
    let mut code = String::from(
        "unsafe extern \"C\" {\n    static cachealloc_door_distances: [i32; COUNT];\n}\n\
         core::arch::global_asm!(\n    \".pushsection .rodata.cachealloc_door_distances, \\\"a\\\"\",\n    \
         \".balign 4\",\n    \".globl cachealloc_door_distances\",\n    \
         \".hidden cachealloc_door_distances\",\n    \"cachealloc_door_distances:\",\n",
    );
    for row in rows {
        let distance = match row.hooked() {
            true => format!("cachealloc_door_{} - .", row.symbol),
            false => "0".to_string(),
        };
        writeln!(code, "    \".long {distance}\",").unwrap();
    }
    code + "    \".popsection\",\n);\n"
}

/// Parses the column `args`: the number of arguments, or the type of each, as [`type_of`] and
/// `[T]`, which points to a `T` of `driver::sys`. Returns `None` if they are unknown.
fn types(column: &str) -> Option<Vec<String>> {
    if let Ok(count) = column.parse() {
        return Some(vec![type_of('w').to_string(); count]);
    }
    let (mut types, mut rest) = (Vec::new(), column);
    while let Some(letter) = rest.chars().next() {
        let after = &rest[1..];
        rest = match after.split_once(']').filter(|_| letter == '[') {
            Some((target, rest)) => {
                types.push(format!("*const {target}"));
                rest
            }
            None => {
                types.push(type_of(letter).to_string());
                after
            }
        };
    }
    (!types.is_empty()).then_some(types)
}

/// Returns the type of a letter. Capitals are places that the call writes to.
fn type_of(letter: char) -> &'static str {
    match letter {
        // A size, a handle, or any integer or pointer of at most eight bytes that no hook reads.
        'w' => "usize",
        'i' => "i32",
        'u' => "u32",
        'f' => "f32",
        // Device addresses, too.
        'l' => "u64",
        'p' => "*mut c_void",
        // Passed by value.
        'h' => "Handle64",
        'e' => "EglFrame",
        'W' => "*mut usize",
        'U' => "*mut u32",
        'L' => "*mut u64",
        'P' => "*mut *mut c_void",
        'H' => "*mut Handle64",
        _ => panic!("functions.csv: unknown type {letter:?}"),
    }
}

fn exports(rows: &[Row]) -> String {
    let mut code = String::new();
    for row in rows.iter().filter(|row| row.hooked()) {
        let types = row.arguments.as_deref().unwrap_or_default();
        let join = |f: &dyn Fn(usize, &String) -> String| {
            types.iter().enumerate().map(|(i, of)| f(i, of)).collect::<Vec<_>>().join(", ")
        };
        let parameters = join(&|i, of| format!("a{i}: {of}"));
        let words = join(&|i, of| match of.as_str() {
            // The callee reads it before the call ends.
            "Handle64" | "EglFrame" => format!("&raw const a{i} as usize"),
            "usize" => format!("a{i}"),
            _ => format!("a{i} as usize"),
        });
        let (hook, taken) = match row.hook.trim_end_matches(')').split_once('(') {
            _ if row.hook.is_empty() => ("common::pass", String::new()),
            Some((hook, places)) => {
                (hook, places.split_whitespace().map(|place| format!("a{place} ")).collect())
            }
            None => (row.hook, types.iter().enumerate().map(|(i, _)| format!("a{i} ")).collect()),
        };
        writeln!(
            code,
            "export! {{ {}({parameters}), [{words}], {hook}, [{taken}], {}, [{}], {}, {} }}",
            row.symbol,
            row.around_hook(),
            row.submits_to(),
            row.not_caching(),
            row.repeats_are_noted(),
        )
        .unwrap();
    }
    code
}
