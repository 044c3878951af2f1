//! Expands `src/preload/functions.csv` into the export table.
//!
//! A function that some file under `api/` defines inside `driver! { .. }` points there; every other
//! row becomes a separate stub that returns "not supported". Two rows never share an address, as in
//! the real library, so a map from pointer to function stays exact.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1,-z,nodelete");
    // The table of functions holds this library's own functions, even if a preloaded library
    // defines the same names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=../../src/preload/functions.csv");
    println!("cargo:rerun-if-changed=api");
    let mut found = HashMap::new();
    implemented(Path::new("api"), "crate::api", &mut found);
    let table = fs::read_to_string("../../src/preload/functions.csv").expect("the function table");
    let mut rows: Vec<Row> = table.lines().skip(1).map(Row::parse).collect();
    // Sorted by version within a base name: the look-up takes the last that is old enough.
    rows.sort_by(|a, b| (a.base, a.api_version).cmp(&(b.base, b.api_version)));

    let mut stubs = String::new();
    let mut list = String::new();
    for row in &rows {
        let path = match found.get(row.symbol) {
            Some(module) => format!("{module}::{}", row.symbol),
            None => {
                stubs.push_str(&stub(row.symbol));
                row.symbol.to_string()
            }
        };
        let Row { symbol, base, api_version, per_thread } = row;
        writeln!(
            list,
            "    Function {{ symbol: {symbol:?}, base: {base:?}, api_version: {api_version}, \
             per_thread: {per_thread}, address: Address({path} as *const ()) }},"
        )
        .expect("writing to a string");
    }
    for name in found.keys() {
        assert!(rows.iter().any(|row| row.symbol == name), "{name} is not in the table");
    }
    let text = format!("{stubs}\npub static FUNCTIONS: &[Function] = &[\n{list}];\n");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("functions.rs"), text).expect("writing the table");
}

struct Row<'a> {
    symbol: &'a str,
    base: &'a str,
    api_version: i32,
    per_thread: bool,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> Row<'a> {
        let mut fields = line.split(',');
        let mut next = || fields.next().expect("a short row");
        let (symbol, base, version, per_thread) = (next(), next(), next(), next());
        // Three exports are in no header and have no version.
        let api_version = version.parse().unwrap_or(0);
        Row { symbol, base, api_version, per_thread: per_thread == "1" }
    }
}

fn stub(symbol: &str) -> String {
    format!(
        "/// Not modelled.\n#[cfg_attr(not(test), unsafe(no_mangle))]\npub extern \"C\" fn \
         {symbol}() -> i32 {{ crate::call::not_modelled({symbol:?}) }}\n"
    )
}

/// Symbol to module, read from the lines `fn cuName, cuName_ptsz: (` of `driver!` blocks.
fn implemented(folder: &Path, module: &str, found: &mut HashMap<String, String>) {
    for entry in fs::read_dir(folder).expect("the folder api") {
        let path = entry.expect("a directory entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let module = format!("{module}::{name}");
        if path.is_dir() {
            implemented(&path, &module, found);
            continue;
        }
        for line in fs::read_to_string(&path).expect("a source file").lines() {
            let Some(rest) = line.trim_start().strip_prefix("fn cu") else { continue };
            let names = rest.split(':').next().expect("split yields one");
            for name in format!("cu{names}").split(',').map(str::trim) {
                found.insert(name.to_string(), module.clone());
            }
        }
    }
}
