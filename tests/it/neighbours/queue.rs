//! `wait_for_memory_s`: a request waits for memory instead of failing.

use super::*;

const WAITS: &str = "idle_release_s:3600,wait_for_memory_s:60";
const CACHES_NOTHING: &str = "live:false,fraction_of_gpu_memory_to_use:0";
/// Several looks of a request that waits.
const A_WHILE: Duration = Duration::from_millis(300);

impl Process {
    /// Whether it has answered within a while.
    fn has_answered(&self) -> bool {
        self.has_answered_within(A_WHILE)
    }

    fn has_answered_within(&self, longest: Duration) -> bool {
        let mut entry =
            libc::pollfd { fd: self.says.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        unsafe { libc::poll(&mut entry, 1, longest.as_millis() as i32) == 1 }
    }
}

/// Memory of another process, of which the cache gives what is free, and the driver what goes past it.
#[test]
fn a_request_waits_until_there_is_memory() {
    const ALONE: &str = "live:false,wait_for_memory_s:60";
    for (holder, waiter) in [(KEEPS, WAITS), (CACHES_NOTHING, WAITS), (CACHES_NOTHING, ALONE)] {
        for kind in ["alloc", "async", "create", "array"] {
            let house = House::new();
            let (mut first, mut second) = (house.process(holder), house.process(waiter));
            let block = first.takes("alloc 800");
            second.tell(&format!("{kind} 600"));
            assert!(!second.has_answered(), "{kind}, {holder}, {waiter}");
            first.frees(block);
            assert_eq!(second.answer(), 0, "{kind}, {holder}, {waiter}");
            first.ends();
            second.ends();
            house.ends_clean();
        }
    }
}

#[test]
fn another_thread_of_the_program_may_free_it() {
    for conf in [WAITS, "wait_for_memory_s:60,gpu_memory_limit_mb:900,live:false"] {
        let house = House::new();
        let mut process = house.process(conf);
        let block = process.takes("alloc 700");
        assert_eq!(process.does(&format!("soon {block}")), 0);
        process.takes("alloc 600");
        process.ends();
        house.ends_clean();
    }
}

/// What no device could have fails at once, and without the option so does everything.
#[test]
fn what_cannot_be_had_is_not_waited_for() {
    let house = House::new();
    let (mut first, mut second) = (house.process(WAITS), house.process(KEEPS));
    for kind in ["alloc", "async", "create", "pitch"] {
        assert_eq!(first.does(&format!("{kind} 2000")), OUT_OF_MEMORY);
    }
    first.takes("alloc 800");
    assert_eq!(second.does("alloc 600"), OUT_OF_MEMORY);
    first.ends();
    second.ends();
    house.ends_clean();
}

/// A small request does not pass a large one that waits, unless the order is broken.
#[test]
fn who_comes_first_is_served_first() {
    let run = |rule: Option<Rule>| {
        let house = House::new();
        let breaks = |run: Run| match rule {
            Some(rule) => run.env("CACHEALLOC_BREAK", rule.name()),
            None => run,
        };
        let mut holder = house.process(CACHES_NOTHING);
        let [mut large, mut small] = [0, 1].map(|_| house.process_with(WAITS, breaks));
        let blocks = [400, 200, 200].map(|mib| holder.takes(&format!("alloc {mib}")));
        large.tell("alloc 700");
        assert!(!large.has_answered());
        small.tell("alloc 300");
        assert!(!small.has_answered());
        holder.frees(blocks[1]);
        holder.frees(blocks[2]);
        let longest = if rule.is_some() { Duration::from_secs(60) } else { A_WHILE };
        let has_passed = small.has_answered_within(longest);
        holder.frees(blocks[0]);
        if !has_passed {
            assert_eq!(large.answer(), 0);
        }
        small.dies();
        large.dies();
        holder.ends();
        has_passed
    };
    assert!(!run(None));
    assert!(run(Some(Rule::WaitersQueue)));
}

/// A process that was stopped or killed while it waited holds nobody up.
#[test]
fn who_does_not_look_is_passed() {
    let house = House::new();
    let mut holder = house.process(KEEPS);
    let [mut stopped, mut killed, mut last] = [0, 1, 2].map(|_| house.process(WAITS));
    let block = holder.takes("alloc 600");
    for process in [&mut stopped, &mut killed] {
        process.tell("alloc 500");
        assert!(!process.has_answered());
    }
    stopped.signal(libc::SIGSTOP);
    killed.dies();
    last.tell("alloc 500");
    holder.frees(block);
    assert_eq!(last.answer(), 0);
    stopped.signal(libc::SIGCONT);
    last.ends();
    assert_eq!(stopped.answer(), 0);
    stopped.ends();
    holder.ends();
    house.ends_clean();
}

/// Each waits for what the other one holds: both end, with the driver's error.
#[test]
fn two_that_wait_for_each_other_both_end() {
    let house = House::new();
    let conf = "wait_for_memory_s:1";
    let (mut first, mut second) = (house.process(conf), house.process(conf));
    for process in [&mut first, &mut second] {
        process.takes("alloc 400");
    }
    let begun = Instant::now();
    first.tell("alloc 500");
    second.tell("alloc 500");
    assert_eq!((first.answer(), second.answer()), (OUT_OF_MEMORY, OUT_OF_MEMORY));
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    first.ends();
    second.takes("alloc 500");
    second.ends();
    house.ends_clean();
}
