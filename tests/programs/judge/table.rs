//! Tests whether the judge would find each fixed error again. It leaves out one rule of the library
//! after the other, and counts the programs until something differs. `judge table --lib LIB
//! --driver DIR [--programs N] [--jobs N]` prints a row for each rule.
//!
//! LIB is built with `break-rules`. A difference that also occurs with the rule in place does not
//! count.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::arguments::Arguments;
use crate::campaign;
use crate::compare::Finding;
use crate::ending::Ending;
use crate::generate;
use crate::run::Machine;

/// Each error, and the rule that prevents it.
const MENDS: &[(&str, &str)] = &[
    ("frees by threads that only submit into a capture", "submitting_thread_takes_part"),
    ("blocks that such a thread held before", "allocated_blocks_join"),
    ("a second `cuInit`", "second_init_forgets_nothing"),
    ("stream-ordered frees during a capture", "capture_leaves_tags"),
    ("memory of a relaxed capture that no node references", "unreferenced_is_free"),
    ("memory that another stream frees after a kernel", "stream_takes_memory_of_others"),
    ("the same in several pieces", "pieces_are_awaited"),
    ("stream-ordered memory freed by `cuMemFree`", "assumed_over_where_short"),
    ("queries after the free of a thread that has ended", "pending_barrier_outlives_thread"),
    ("queries after the free of a living thread", "others_frees_for_a_while"),
    ("pinned memory addressed by its end", "ranges_have_margins"),
    ("pinned memory in a packed struct", "arguments_at_any_byte"),
    ("a pinned address in a node made by hand", "nodes_are_scanned"),
    ("a pinned address among arguments set before", "unknown_arguments_stay"),
    ("pinned memory read through a texture", "objects_are_visible"),
    ("base and offset of a 2D or 3D copy", "offsets_count"),
    ("batches with pageable operands", "batches_are_visible"),
    ("pinned memory that changes hands between threads", "out_before_driver"),
    ("one buffer registered by two threads", "refused_entry_alone"),
    ("contexts created and destroyed by several threads", "ends_only_what_existed"),
    ("a kernel of a later context", "kernels_end_with_context"),
    ("access to a mapping removed", "less_access_waits"),
    ("a wait with a green context current", "green_wait_is_partial"),
    ("requests in host functions", "callback_is_asked"),
    ("attributes of the default pool", "pool_numbers_are_ours"),
    ("text of kernels at the end of the process", "end_waits"),
    ("memory in release, requested by another thread", "release_in_progress_is_awaited"),
    ("memory in release, requested again", "released_memory_is_retried"),
    ("memory that still moves in expandable segments", "arrived_is_recorded"),
    ("fills by the library", "own_work_counts"),
    ("a capture of two contexts", "capture_in_every_context"),
    ("a barrier that the driver refuses", "refused_barrier_waits_in_driver"),
    ("the end of a context during teardowns", "end_waits_while_open"),
    ("a reference released during teardowns", "references_are_counted"),
    ("a primary context that is not destroyed", "primary_is_not_destroyed"),
    ("a graph uploaded at its instantiation", "upload_makes_room"),
    ("a kernel loaded in a capture", "unchanged_capture_retries"),
    ("freed memory that a node references", "held_leaves_with_capture"),
    ("memory of a graph whose end another thread notices", "reap_in_progress_is_awaited"),
    ("the end of memory of another context", "owners_work_is_waited_for"),
    ("a stream that must wait for its own barrier", "streams_wait_for_themselves"),
    ("a stream that must wait for the newest barrier", "streams_wait_for_the_newest"),
];

const PROGRAMS: u64 = 2_000;
const TRIES: usize = 4;

#[derive(Clone)]
struct Found {
    /// Number of programs that it took.
    programs: u64,
    theme: String,
    how: String,
}

struct Table<'a> {
    arguments: &'a Arguments,
    themes: Vec<&'static str>,
    wanted: Vec<(&'static str, &'static str)>,
    next: AtomicU64,
    end: u64,
    ending: Ending,
    found: Mutex<Vec<Option<Found>>>,
}

pub fn table(arguments: &Arguments) -> Result<bool, String> {
    let rules = arguments.texts("break");
    let is_wanted = |rule: &str| rules.is_empty() || rules.iter().any(|name| name == rule);
    let wanted: Vec<_> = MENDS.iter().copied().filter(|(_, rule)| is_wanted(rule)).collect();
    let ending = Ending::after(arguments.number("seconds", 0)?);
    let machine = Machine { ending, broken: String::new(), ..arguments.machine()? };
    let theme = arguments.text("theme").unwrap_or("all");
    let is_tried = |name: &&str| theme == "all" || *name == theme;
    let table = Table {
        arguments,
        themes: generate::themes().into_iter().filter(is_tried).collect(),
        next: AtomicU64::new(0),
        end: arguments.number("programs", PROGRAMS)?,
        ending,
        found: Mutex::new(vec![None; wanted.len()]),
        wanted,
    };
    std::thread::scope(|scope| {
        for job in 0..arguments.number("jobs", 1).unwrap_or(1) {
            let own = Machine { scratch: machine.scratch.join(job.to_string()), ..machine.clone() };
            let table = &table;
            scope.spawn(move || table.work(&own));
        }
    });
    let _ = std::fs::remove_dir_all(&machine.scratch); // logs of ended runs
    Ok(table.print())
}

impl Table<'_> {
    fn work(&self, machine: &Machine) {
        loop {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            if number >= self.end || self.ending.has_come() || self.missing().is_empty() {
                return;
            }
            self.one(machine, number);
        }
    }

    /// Indices of the rules whose absence has not been detected so far.
    fn missing(&self) -> Vec<usize> {
        let found = self.found.lock().expect("no job panics");
        (0..found.len()).filter(|place| found[*place].is_none()).collect()
    }

    fn one(&self, machine: &Machine, number: u64) {
        let count = self.themes.len() as u64;
        let (seed, theme) = (1 + number / count, self.themes[(number % count) as usize]);
        let without = self.arguments.without();
        let program = generate::program(seed, theme, &without).expect("a known theme");
        let confs = campaign::confs_for(&program);
        let Ok(baseline) = machine.baseline(&program, true) else { return };
        for place in self.missing() {
            let (what, rule) = self.wanted[place];
            let broken = Machine { broken: rule.into(), ..machine.clone() };
            let differs = confs.iter().find_map(|conf| {
                let found = broken.judge(&program, &baseline, conf)?.into_iter().next()?;
                // Where threads meet, a difference does not occur each time; with the rule in place
                // it never does.
                let again = |machine: &Machine| machine.judge(&program, &baseline, conf);
                let same = |found: &Finding, kind: &str| found.kind == kind;
                let shows = |_: &usize| {
                    again(&broken).is_some_and(|all| all.iter().any(|one| same(one, &found.kind)))
                };
                let alike = |_: usize| again(machine).is_some_and(|all| all.is_empty());
                let sure = (0..TRIES).find(shows).is_some() && (0..TRIES).all(alike);
                sure.then(|| format!("{}: {}", conf.replace("free_mode:", ""), found.kind))
            });
            if self.ending.has_come() {
                return;
            }
            let Some(how) = differs else { continue };
            println!("{rule} after {}: {theme} {how} ({what})", number + 1);
            let mut all = self.found.lock().expect("no job panics");
            let earlier = all[place].as_ref().is_some_and(|known| known.programs <= number + 1);
            if !earlier {
                all[place] = Some(Found { programs: number + 1, theme: theme.into(), how });
            }
        }
    }

    /// Prints the table, and returns whether all were found.
    fn print(&self) -> bool {
        let found = self.found.lock().expect("no job panics");
        let tried = self.next.load(Ordering::SeqCst).min(self.end);
        println!("| rule left out | error | programs until found | theme | by |");
        println!("|---|---|---|---|---|");
        for ((what, rule), found) in self.wanted.iter().zip(found.iter()) {
            match found {
                Some(Found { programs, theme, how }) => {
                    println!("| `{rule}` | {what} | {programs} | {theme} | {how} |");
                }
                None => println!("| `{rule}` | {what} | not in {tried} | | |"),
            }
        }
        found.iter().all(Option::is_some)
    }
}
