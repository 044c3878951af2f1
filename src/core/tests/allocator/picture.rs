//! The picture language: a program in, a drawing of the segments out.
//!
//! ```text
//! program                           drawing
//! policy max_split_size_mb:40       a: reserve 20M                 what the request asked for
//! capacity 100M                     20M large | a 3M | 17M free    one line for each segment
//! a = alloc 3M [s1]                 reserved 20M  allocated 3M  active 3M
//! free a [on s1 e1 | after e1 | elsewhere e1 | parked]
//! finish e1, report                 the device completes e1; the allocator learns of it
//! m = mark, barrier m, barrier      a barrier recorded at the mark, or now
//! export a                          another process maps a
//! n = now, idle n, excess n         releases memory unused since then, or its excess
//! give 20M n                        releases 20M of it for another process
//! trim, pressure on, pressure off, limit 50M, room 50M, chunk 40M
//! ```
//!
//! `UPDATE_PICTURES=1 cargo test -p cachealloc-core` writes the drawings into the sources.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Mutex;

use cachealloc_core::policy::MIB;
use cachealloc_core::{
    Allocation, BlockId, BlockState, BlockView, EventId, Mapping, Policy, Pool, PrivatePool,
    Requester, ReuseCondition, Segment, SegmentView, StreamId,
};
use cachealloc_options::parse;

use crate::world::{Asked, Mark, Moment, World};

/// Runs the program, checking every invariant after each line, and compares the drawing.
#[track_caller]
pub fn check(program: &str, picture: &str) {
    let drawn = Drawing::of(program);
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.trim().to_string()).filter(|line| !line.is_empty()).collect()
    };
    if lines(&drawn) == lines(picture) {
        return;
    }
    if std::env::var_os("UPDATE_PICTURES").is_some() {
        return update(Location::caller().file(), program, picture, &drawn);
    }
    panic!("program:\n{program}\nexpected:\n{picture}\ndrawn:\n{drawn}");
}

struct Drawing {
    world: World,
    live: BTreeMap<String, Allocation>,
    freed: BTreeMap<String, BlockId>,
    marks: BTreeMap<String, Mark>,
    moments: BTreeMap<String, Moment>,
    asked: Vec<String>,
}

impl Drawing {
    fn of(program: &str) -> String {
        let world = World::new(Policy::default(), 1 << 50);
        let mut drawing = Drawing {
            world,
            live: BTreeMap::new(),
            freed: BTreeMap::new(),
            marks: BTreeMap::new(),
            moments: BTreeMap::new(),
            asked: Vec::new(),
        };
        for line in program.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            drawing.run(&words);
            let retired = core::mem::take(&mut drawing.world.retired);
            if !retired.is_empty() {
                let text = text_of(&Asked::Release(retired));
                drawing.asked.push(format!("{}: {text} for good", words.join(" ")));
            }
            drawing.world.allocator.check();
        }
        drawing.draw()
    }

    fn run(&mut self, words: &[&str]) {
        match words {
            ["policy", text] => {
                let (config, problems) = parse(text);
                assert!(problems.is_empty(), "{}", problems[0]);
                self.world = World::new(config.policy, self.world.driver.capacity_bytes);
            }
            ["capacity", size] => self.world.driver.capacity_bytes = bytes(size),
            ["chunk", size] => self.world.allocator.set_chunk(bytes(size)),
            ["limit", size] => self.world.allocator.set_limit(Some(bytes(size))),
            ["room", size] => self.world.allocator.set_capacity(Some(bytes(size)), false),
            ["room", size, "limit"] => self.world.allocator.set_capacity(Some(bytes(size)), true),
            ["pressure", on] => self.world.allocator.set_pressure(*on == "on"),
            [name, "=", "alloc", size] => self.alloc(name, bytes(size), Requester::Context),
            [name, "=", "alloc", size, on] => {
                self.alloc(name, bytes(size), Requester::Stream(stream(on)));
            }
            [name, "=", "alloc", size, "in", pool] => {
                self.alloc_in(name, bytes(size), Requester::Context, Some(private(pool)));
            }
            [name, "=", "alloc", size, on, "in", pool] => {
                let requester = Requester::Stream(stream(on));
                self.alloc_in(name, bytes(size), requester, Some(private(pool)));
            }
            ["open", pool] => assert_eq!(self.world.open_pool(), private(pool)),
            ["end", pool] => self.world.end_pool(private(pool)),
            ["close", pool] => self.world.close_pool(private(pool)),
            ["reuse", name] => self.world.reuse(self.freed[*name], None),
            ["reuse", name, on] => self.world.reuse(self.freed[*name], Some(stream(on))),
            ["free", name, when @ ..] => {
                let block = self.live.remove(*name).expect("a live name").block;
                self.freed.insert(name.to_string(), block);
                self.world.free(block, ready(when));
            }
            ["export", name] => {
                let block = self.live[*name].block;
                self.world.export(block);
            }
            ["finish", name] => self.world.finish(event(name)),
            ["report"] => self.world.report_finished(),
            [name, "=", "mark"] => {
                self.marks.insert(name.to_string(), self.world.mark());
            }
            ["barrier"] => self.world.barrier_passed(self.world.mark()),
            ["barrier", name] => self.world.barrier_passed(self.marks[*name]),
            ["trim"] => {
                let gone = self.world.trim();
                self.gone("trim", gone);
            }
            [name, "=", "now"] => {
                self.moments.insert(name.to_string(), self.world.moment());
            }
            ["idle", name] => {
                let gone = self.world.release_idle(self.moments[*name]);
                self.gone("idle", gone);
            }
            ["give", size, name] => {
                let gone = self.world.give(self.moments[*name], bytes(size));
                self.gone("give", gone);
            }
            ["excess", name] => {
                let gone = self.world.release_excess(self.moments[*name]);
                self.gone("excess", gone);
            }
            _ => panic!("not a line of the language: {words:?}"),
        }
    }

    fn gone(&mut self, how: &str, (segments, mappings): (Vec<Segment>, Vec<Mapping>)) {
        let unmapped = match mappings.is_empty() {
            true => String::new(),
            false => format!(", {}", text_of(&Asked::Unmap(mappings))),
        };
        let released = text_of(&Asked::Release(segments));
        self.asked.push(format!("{how}: {released}{unmapped}"));
    }

    fn alloc(&mut self, name: &str, bytes: u64, requester: Requester) {
        self.alloc_in(name, bytes, requester, None);
    }

    fn alloc_in(
        &mut self,
        name: &str,
        bytes: u64,
        requester: Requester,
        pool: Option<PrivatePool>,
    ) {
        let (found, asked) = self.world.alloc_in(bytes, requester, pool);
        if !asked.is_empty() {
            let steps: Vec<String> = asked.iter().map(text_of).collect();
            self.asked.push(format!("{name}: {}", steps.join(", ")));
        }
        if let Some(found) = found {
            self.live.insert(name.to_string(), found);
        }
    }

    fn draw(&self) -> String {
        let allocator = &self.world.allocator;
        let mut lines = self.asked.clone();
        for segment in allocator.segments() {
            let blocks: Vec<String> =
                allocator.blocks(segment.id).map(|block| self.block(&block)).collect();
            lines.push(format!("{} | {}", segment_text(&segment), blocks.join(" | ")));
        }
        let stats = allocator.stats();
        lines.push(format!(
            "reserved {}  allocated {}  active {}",
            size(stats.reserved_bytes.all.current),
            size(stats.allocated_bytes.all.current),
            size(stats.active_bytes.all.current)
        ));
        lines.join("\n")
    }

    fn block(&self, block: &BlockView) -> String {
        let bytes = size(block.bytes);
        match block.state {
            BlockState::Allocated => {
                let owner = self.live.iter().find(|(_, live)| live.block == block.block);
                let exported = if block.exported { " exported" } else { "" };
                format!("{} {bytes}{exported}", owner.expect("a block has a name").0)
            }
            BlockState::Free(ReuseCondition::Everywhere) if block.exported => {
                format!("{bytes} retired")
            }
            BlockState::Free(ReuseCondition::Everywhere) => format!("{bytes} free"),
            BlockState::Free(ReuseCondition::OnStream { stream, event }) => {
                format!("{bytes} free s{} e{}", stream.0, event.0)
            }
            BlockState::Free(ReuseCondition::After { event }) => {
                format!("{bytes} pending e{}", event.0)
            }
            BlockState::Free(ReuseCondition::AfterElsewhere { event }) => {
                format!("{bytes} pending e{} elsewhere", event.0)
            }
            BlockState::Free(ReuseCondition::NextBarrier) => format!("{bytes} parked"),
            BlockState::Free(ReuseCondition::WithPool) => format!("{bytes} kept"),
            BlockState::Free(ReuseCondition::InPool { stream }) => {
                format!("{bytes} free s{}", stream.0)
            }
        }
    }
}

fn segment_text(segment: &SegmentView) -> String {
    let pool = if segment.pool == Pool::Small { "small" } else { "large" };
    let private = segment.private.map(|private| format!(" p{}", private.0));
    format!("{} {pool}{}", size(segment.bytes), private.unwrap_or_default())
}

fn text_of(asked: &Asked) -> String {
    match asked {
        Asked::QueryEvents => "query".into(),
        Asked::Reserve { bytes, granted: true } => format!("reserve {}", size(*bytes)),
        Asked::Reserve { bytes, granted: false } => format!("reserve {} fails", size(*bytes)),
        Asked::Map { bytes, granted: true } => format!("map {}", size(*bytes)),
        Asked::Map { bytes, granted: false } => format!("map {} fails", size(*bytes)),
        Asked::Unmap(mappings) => {
            let bytes = mappings.iter().map(|mapping| mapping.bytes).sum();
            format!("unmap {}", size(bytes))
        }
        Asked::Order(events) => {
            let events: Vec<_> = events.iter().map(|event| format!("e{}", event.0)).collect();
            format!("behind {}", events.join(" "))
        }
        Asked::OutOfMemory => "out of memory".into(),
        Asked::Release(segments) if segments.is_empty() => "release nothing".into(),
        Asked::Release(segments) => {
            let texts = segments.iter().map(|segment| {
                let events = segment.events.iter().map(|event| format!(" e{}", event.0));
                size(segment.bytes) + &events.collect::<String>()
            });
            format!("release {}", texts.collect::<Vec<_>>().join(" + "))
        }
    }
}

fn ready(words: &[&str]) -> ReuseCondition {
    match words {
        [] => ReuseCondition::Everywhere,
        ["on", on, when] => ReuseCondition::OnStream { stream: stream(on), event: event(when) },
        ["after", when] => ReuseCondition::After { event: event(when) },
        ["elsewhere", when] => ReuseCondition::AfterElsewhere { event: event(when) },
        ["parked"] => ReuseCondition::NextBarrier,
        _ => panic!("not a way to free: {words:?}"),
    }
}

fn stream(text: &str) -> StreamId {
    StreamId(text.strip_prefix('s').expect("s1").parse().expect("s1"))
}

fn private(text: &str) -> PrivatePool {
    PrivatePool(text.strip_prefix('p').expect("p1").parse().expect("p1"))
}

fn event(text: &str) -> EventId {
    EventId(text.strip_prefix('e').expect("e1").parse().expect("e1"))
}

fn bytes(text: &str) -> u64 {
    let (digits, unit) = text.split_at(text.len() - 1);
    match unit {
        "K" => digits.parse::<u64>().expect("a number") << 10,
        "M" => digits.parse::<u64>().expect("a number") * MIB,
        "G" => digits.parse::<u64>().expect("a number") << 30,
        _ => text.parse().expect("a number"),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0 => "0".into(),
        _ if bytes.is_multiple_of(1 << 30) => format!("{}G", bytes >> 30),
        _ if bytes.is_multiple_of(MIB) => format!("{}M", bytes / MIB),
        _ if bytes.is_multiple_of(1024) => format!("{}K", bytes >> 10),
        _ => bytes.to_string(),
    }
}

/// Replaces the picture that follows the program in the source, keeping its indentation.
fn update(file: &str, program: &str, picture: &str, drawn: &str) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(&path).expect("the source of the test");
    let begin = source.find(program).expect("the program in its source") + program.len();
    let offset = source[begin..].find(&format!("\"{picture}\"")).expect("its picture") + 1;
    let (before, rest) = source.split_at(begin + offset);
    let indented: String = drawn.lines().map(|line| format!("\n            {line}")).collect();
    let text = format!("{before}{indented}\n        {}", &rest[picture.len()..]);
    std::fs::write(&path, text).expect("a source that can be written");
}
