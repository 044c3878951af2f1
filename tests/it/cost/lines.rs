//! Cache lines that a call touches, and functions on its way. A training step reads megabytes
//! between two calls, so a call waits for memory once for each of its lines.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use cachealloc_tests::{compile, compile_library, library, release_library, root, skipped};

/// Calls, and the maximum numbers of lines of data and of code that a round of them touches under
/// the library, without those of the program and the driver.
const LINES: [(&str, usize, usize); 2] = [("pair", 11, 17), ("launch", 9, 5)];

/// Calls, the beginning of their export's name, and the maximum number of functions on their way.
/// A launch passes through none.
const FUNCTIONS: [(&str, &str, usize); 2] = [("pair", "cuMemAlloc", 12), ("pair", "cuMemFree", 15)];

/// Rounds of the calls: what the program does once touches fewer lines that often.
const ROUNDS: usize = 5_000;

/// Beginning of a line of the trace in which `calls.c` marks where its calls begin and end.
const MARK: &str = " L 7000000000,";

#[test]
#[ignore = "long tier"]
fn calls_touch_few_lines() {
    if !has("valgrind") {
        return skipped("valgrind is not installed");
    }
    for (kind, data_max, code_max) in LINES {
        let [data, code] = lines(kind, Some(&release_library()));
        let [own_data, own_code] = lines(kind, None);
        let (data, code) = (data - own_data, code - own_code);
        println!("{kind}: {data} lines of data, {code} of code");
        assert!(data <= data_max && code <= code_max, "{kind}: {data_max} and {code_max} wanted");
    }
}

fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok()
}

/// A tool of valgrind that runs `calls.c`.
fn calls(tool: &[&str], kind: &str, library: Option<&Path>) -> Command {
    let driver = compile_library("idle_driver.c", "driver_idle/libcuda.so.1", &[]);
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(tool)
        .arg(compile("calls.c"))
        .args([kind, &ROUNDS.to_string()])
        .env("LD_LIBRARY_PATH", driver.parent().expect("it has a folder"))
        .env("CACHEALLOC_CONF", "snapshot:/dev/null/no,free_mode:ordered")
        .envs(library.map(|library| ("LD_PRELOAD", library)));
    valgrind
}

/// Returns how many lines of data and of code at least every other round touches.
fn lines(kind: &str, library: Option<&Path>) -> [usize; 2] {
    let mut valgrind = calls(&["--tool=lackey", "--trace-mem=yes"], kind, library);
    let mut running = valgrind.stderr(Stdio::piped()).spawn().expect("valgrind runs");
    let trace = BufReader::new(running.stderr.take().expect("a pipe"));
    let (mut is_counted, mut touched) = (false, [BTreeMap::new(), BTreeMap::new()]);
    for line in trace.lines() {
        let line = line.expect("text");
        if line.starts_with(MARK) {
            is_counted = !is_counted;
        }
        let Some((kind, rest)) = line.split_at_checked(3).filter(|_| is_counted) else { continue };
        let kind = usize::from(kind == "I  ");
        let Some((address, bytes)) = rest.split_once(',') else { continue };
        let (Ok(first), Ok(bytes)) = (u64::from_str_radix(address, 16), bytes.parse::<u64>())
        else {
            continue;
        };
        for line in first / 64..=(first + bytes - 1) / 64 {
            *touched[kind].entry(line).or_insert(0) += 1;
        }
    }
    assert!(running.wait().expect("it ends").success(), "{kind}");
    touched.map(|lines| lines.values().filter(|count| **count >= ROUNDS / 2).count())
}

/// A reader follows a call through few functions: those of the library on its way, but none of at
/// most three lines, which only name what they do.
#[test]
#[ignore = "long tier"]
fn calls_pass_through_few_functions() {
    if !has("valgrind") || !has("addr2line") {
        return skipped("valgrind or addr2line is not installed");
    }
    for (kind, export, functions_max) in FUNCTIONS {
        let functions = functions(kind, export);
        println!("{export}, {} functions: {functions:?}", functions.len());
        assert!(
            !functions.is_empty() && functions.len() <= functions_max,
            "{functions_max} wanted"
        );
    }
}

/// Returns the functions that every round passes through, by file and name.
fn functions(kind: &str, export: &str) -> BTreeSet<String> {
    let library = library();
    let out = std::env::temp_dir().join(format!("cachealloc-{}-{kind}", std::process::id()));
    let tool = format!("--callgrind-out-file={}", out.display());
    let tool = ["--tool=callgrind", "--dump-instr=yes", "--toggle-collect=counted", &tool];
    let output = calls(&tool, kind, Some(&library)).output().expect("valgrind runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let profile = std::fs::read_to_string(&out).expect("a profile");
    let _ = std::fs::remove_file(&out);
    let found = Command::new("addr2line")
        .args(["-a", "-f", "-i", "-C", "-e"])
        .arg(&library)
        .args(hot(&profile, &library))
        .output()
        .expect("addr2line runs");
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    // One paragraph for each address: its line, then pairs of a function and a place, innermost
    // first.
    let mut names = BTreeSet::new();
    for paragraph in text.split("\n0x") {
        let lines: Vec<&str> = paragraph.lines().skip(1).collect();
        if lines.iter().any(|line| line.contains(export)) {
            names.extend(lines.chunks_exact(2).filter_map(|pair| long_function(pair[1])));
        }
    }
    names
}

/// Returns the addresses in the library that were executed in every round.
fn hot(profile: &str, library: &Path) -> Vec<String> {
    let name = library.file_name().expect("a name").to_string_lossy().into_owned();
    let (mut objects, mut is_here) = (BTreeMap::new(), false);
    let (mut address, mut is_call) = (0_u64, false);
    let mut counts = BTreeMap::new();
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=").or_else(|| line.strip_prefix("cob=")) {
            let (number, path) = object.split_once(' ').unwrap_or((object, ""));
            if !path.is_empty() {
                objects.insert(number.to_string(), path.ends_with(&name));
            }
            if line.starts_with("ob=") {
                is_here = objects[number];
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if let [place, _, count] = line.split(' ').collect::<Vec<_>>()[..]
            && let Ok(count) = count.parse::<usize>()
        {
            address = match place.split_at(1) {
                ("*", _) => address,
                ("+", more) => address + more.parse::<u64>().expect("a number"),
                ("-", less) => address - less.parse::<u64>().expect("a number"),
                _ => u64::from_str_radix(place.trim_start_matches("0x"), 16).expect("an address"),
            };
            // The cost of a call is that of the callee.
            if !core::mem::take(&mut is_call) && is_here {
                *counts.entry(address).or_insert(0) += count;
            }
        }
    }
    let hot = counts.iter().filter(|(_, count)| **count >= ROUNDS);
    hot.map(|(address, _)| format!("{address:#x}")).collect()
}

/// Returns the function around a place of the source, if it is the library's, is not inside a macro
/// and has more than three lines.
fn long_function(place: &str) -> Option<String> {
    let (path, number) = place.split(' ').next()?.rsplit_once(':')?;
    let file = &path[path.find("src/preload/").or_else(|| path.find("src/core/"))?..];
    let number: usize = number.parse().ok()?;
    let text = std::fs::read_to_string(root().join(file)).ok()?;
    let lines: Vec<&str> = text.lines().collect();
    let is_function = |line: &&str| {
        let words: Vec<&str> =
            line.split_whitespace().take_while(|it| !it.starts_with("//")).collect();
        words.contains(&"fn") && !line.trim_start().starts_with("//")
    };
    let first = (0..number.min(lines.len())).rev().find(|index| is_function(&lines[*index]))?;
    let indent = lines[first].len() - lines[first].trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    let begin = (first..).find(|index| lines[*index].ends_with('{'))?;
    let last = (begin..lines.len()).find(|index| lines[*index] == end)?;
    let name = lines[first].split("fn ").nth(1)?.split(['(', '<']).next()?;
    (last - begin > 4 && number <= last + 1).then(|| format!("{file}: {name}"))
}
