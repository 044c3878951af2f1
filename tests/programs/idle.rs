//! Programs whose memory is idle, one per argument: their freed memory should become available to
//! other programs on the device, without any effect on them. Each prints one line, with FAIL if it
//! saw an effect.

use std::path::Path;
use std::time::{Duration, Instant};

use cachealloc_tests::driver::{Driver, Lookup, Outcome};

const MIB: usize = 1 << 20;
/// Virtual nanoseconds: longer than the program.
const LATE: u64 = 60_000_000_000;
const SOON: u64 = 1_000_000;
/// Maximum time that a program waits for the other process.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| arguments[place].parse::<usize>().expect("a number");
    let driver = Driver::open(Lookup::ProcAddress).unwrap_or_else(|error| {
        eprintln!("idle: {error}");
        std::process::exit(2);
    });
    let verdict = match arguments[0].as_str() {
        "hold" => hold(&driver, number(1), number(2), Path::new(&arguments[3])),
        "ask" => ask(&driver, number(1), number(2)),
        "rest" => rest(&driver, number(1)),
        "steps" => steps(&driver, number(1)),
        "rounds" => rounds(&driver, number(1), number(2)),
        "room" => room(&driver, number(1)),
        "answers" => answers(&driver, number(1)),
        "late_kernel" => late_kernel(&driver, number(1)),
        "contexts" => contexts(&driver, number(1)),
        "primary" => primary(&driver, number(1)),
        "ends_unseen" => ends_unseen(&driver, &arguments[1..]),
        "all" => all(&driver),
        "falls" => falls(&driver, number(1)),
        "falls_in_order" => falls_in_order(&driver, number(1)),
        "keep" => keep(&driver, number(1)),
        "capture" => capture(&driver, number(1)),
        "threads" => threads(&driver),
        "leave" => leave(&driver, number(1)),
        other => panic!("no program is called {other}"),
    };
    let verdict = verdict.unwrap_or_else(|code| format!("FAIL, driver error {code}"));
    println!("{}: {verdict}", arguments[0]);
    std::process::exit(verdict.contains("FAIL").into());
}

fn take(d: &Driver, count: usize, bytes: usize) -> Outcome<Vec<u64>> {
    (0..count).map(|_| d.alloc(bytes)).collect()
}

fn give(d: &Driver, blocks: Vec<u64>) -> Outcome {
    blocks.into_iter().try_for_each(|block| d.free(block))
}

fn ok_if(good: bool, otherwise: &str) -> Outcome<String> {
    Ok(if good { "ok".into() } else { format!("FAIL, {otherwise}") })
}

fn sleep_ms(ms: usize) {
    std::thread::sleep(Duration::from_millis(ms as u64));
}

/// Allocates this much in parts, frees everything, and sleeps until the file exists.
fn hold(d: &Driver, mib: usize, part_mib: usize, done: &Path) -> Outcome<String> {
    give(d, take(d, mib / part_mib, part_mib * MIB)?)?;
    std::fs::write(format!("{}.freed", done.display()), "").expect("a folder for the file");
    let begun = Instant::now();
    while !done.exists() && begun.elapsed() < PATIENCE {
        sleep_ms(5);
    }
    // The program can still allocate and free as usual.
    give(d, take(d, 2, MIB)?)?;
    Ok("ok".into())
}

/// Requests this much, again and again.
fn ask(d: &Driver, mib: usize, tries: usize) -> Outcome<String> {
    for _ in 0..tries {
        match d.alloc(mib * MIB) {
            Err(2) => sleep_ms(10),
            other => return other.map(|_| "came".into()),
        }
    }
    Ok("never came".into())
}

/// Frees and sleeps.
fn rest(d: &Driver, ms: usize) -> Outcome<String> {
    give(d, take(d, 5, 100 * MIB)?)?;
    sleep_ms(ms);
    Ok("ok".into())
}

/// Device memory of the process, in pages of 2 MiB, as the simulation counts it.
fn used() -> Option<u64> {
    let folder = std::env::var("SIM_SHARED").expect("where the simulation counts");
    let file = format!("{folder}/{}.0", std::process::id());
    std::fs::read_to_string(file).ok().and_then(|text| text.parse().ok())
}

/// Frees everything and sleeps until exactly this much is left.
fn falls(d: &Driver, left_mib: usize) -> Outcome<String> {
    let before = used().expect("it has a context");
    give(d, take(d, 5, 100 * MIB)?)?;
    falls_to(before + left_mib as u64 / 2)
}

/// Frees memory in stream order and sleeps until exactly this much is left.
fn falls_in_order(d: &Driver, left_mib: usize) -> Outcome<String> {
    let (before, stream) = (used().expect("it has a context"), d.stream()?);
    let blocks: Outcome<Vec<u64>> = (0..5).map(|_| d.alloc_async(100 * MIB, stream)).collect();
    let blocks = blocks?;
    d.launch("late_fill", stream, &[blocks[0], 4096, 7, SOON])?;
    blocks.into_iter().try_for_each(|block| d.free_async(block, stream))?;
    falls_to(before + left_mib as u64 / 2)
}

fn falls_to(pages: u64) -> Outcome<String> {
    let begun = Instant::now();
    while used() != Some(pages) && begun.elapsed() < PATIENCE {
        sleep_ms(2);
    }
    sleep_ms(50);
    ok_if(used() == Some(pages), &format!("{:?} pages are left and not {pages}", used()))
}

/// Frees everything and sleeps until nothing is left, twice. The last block was in a thread cache.
fn all(d: &Driver) -> Outcome<String> {
    let before = used();
    for round in 0..2 {
        give(d, take(d, 5, 100 * MIB)?)?;
        for _ in 0..20 {
            give(d, take(d, 1, 64 << 10)?)?;
        }
        let begun = Instant::now();
        while used() != before {
            if begun.elapsed() > PATIENCE {
                return Ok(format!("FAIL, {:?} pages are left in round {round}", used()));
            }
            sleep_ms(2);
        }
    }
    Ok("ok".into())
}

/// Sleeps with its memory allocated.
fn keep(d: &Driver, ms: usize) -> Outcome<String> {
    take(d, 5, 100 * MIB)?;
    sleep_ms(ms);
    Ok("ok".into())
}

/// Sleeps during a capture.
fn capture(d: &Driver, ms: usize) -> Outcome<String> {
    let (stream, mut graph) = (d.stream()?, 0);
    give(d, take(d, 5, 100 * MIB)?)?;
    let functions = &d.functions;
    // SAFETY: the functions take a stream, and a pointer that is valid for the result.
    let code = unsafe { (functions.cuStreamBeginCapture)(stream, 0) };
    cachealloc_tests::driver::check(code)?;
    sleep_ms(ms);
    let kept = d.calls("cuMemFreeAsync").unwrap_or(0) == 0;
    // SAFETY: as above.
    let code = unsafe { (functions.cuStreamEndCapture)(stream, &mut graph) };
    cachealloc_tests::driver::check(code)?;
    ok_if(kept, "memory was released during a capture")
}

/// Prints the number of the library's threads, with little memory and with much.
fn threads(d: &Driver) -> Outcome<String> {
    let ours = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name == "cachealloc\n").count()
    };
    d.alloc(10 * MIB)?;
    let before = ours();
    d.alloc(100 * MIB)?;
    sleep_ms(100);
    Ok(format!("{before}, then {}", ours()))
}

/// Allocates the same memory at every step, one block of each kind: one with its own segment, one
/// in a shared segment, and one from a thread cache.
fn steps(d: &Driver, ms: usize) -> Outcome<String> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(ms as u64) {
        give(d, take(d, 4, 100 * MIB)?)?;
        give(d, take(d, 4, 4 * MIB)?)?;
        for _ in 0..20 {
            give(d, take(d, 1, 64 << 10)?)?;
        }
        sleep_ms(2);
    }
    Ok("ok".into())
}

/// Allocates the same memory in each round, and rests. In the later rounds no request reaches the
/// driver.
fn rounds(d: &Driver, count: usize, rest_ms: usize) -> Outcome<String> {
    let asked = || -> u64 {
        ["cuMemAlloc_v2", "cuMemCreate"].iter().filter_map(|call| d.calls(call)).sum()
    };
    let mut first_half = 0;
    for round in 0..count {
        if round == count / 2 {
            first_half = asked();
        }
        give(d, take(d, 4, 100 * MIB)?)?;
        give(d, take(d, 4, 4 * MIB)?)?;
        sleep_ms(rest_ms);
    }
    ok_if(asked() == first_half, &format!("{first_half} calls, then {}", asked() - first_half))
}

/// Needs memory at the moment of its release, for itself or for a call of another kind.
fn room(d: &Driver, rounds: usize) -> Outcome<String> {
    for round in 0..rounds {
        give(d, take(d, 4, 200 * MIB)?)?;
        // Sleeps for about the time after which memory is idle.
        std::thread::sleep(Duration::from_micros(3_000 + 97 * (round as u64 % 40)));
        if round % 2 == 0 {
            give(d, vec![d.alloc(900 * MIB)?])?;
            continue;
        }
        let (mut address, mut pitch) = (0, 0);
        let allocate = d.functions.cuMemAllocPitch;
        // SAFETY: locals for the results.
        let code = unsafe { allocate(&mut address, &mut pitch, MIB, 900, 4) };
        cachealloc_tests::driver::check(code)?;
        d.free(address)?;
    }
    Ok("ok".into())
}

/// The reported free bytes stay constant, wherever they are at the moment.
fn answers(d: &Driver, rounds: usize) -> Outcome<String> {
    give(d, take(d, 4, 100 * MIB)?)?;
    let (free, total) = d.memory_info()?;
    for round in 0..rounds {
        if round % 50 == 0 {
            give(d, take(d, 4, 100 * MIB)?)?;
        }
        let now = d.memory_info()?;
        if now != (free, total) {
            return Ok(format!(
                "FAIL, {now:?} after {round} questions, {:?} before",
                (free, total)
            ));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok("ok".into())
}

/// A kernel still writes the memory when it has long been idle.
fn late_kernel(d: &Driver, ms: usize) -> Outcome<String> {
    let stream = d.stream()?;
    let blocks = take(d, 4, 100 * MIB)?;
    d.launch("late_fill", stream, &[blocks[0], 4096, 7, LATE])?;
    give(d, blocks)?;
    sleep_ms(ms);
    let gone = |call| d.calls(call).unwrap_or(0);
    let kept = gone("cuMemFreeAsync") + gone("cuMemUnmap") == 0;
    d.synchronize()?;
    ok_if(kept, "memory that a kernel writes was released")
}

/// Creates and destroys contexts with memory in their caches.
fn contexts(d: &Driver, rounds: usize) -> Outcome<String> {
    let main = d.context();
    let seen = std::thread::scope(|scope| -> Outcome<bool> {
        let other = scope.spawn(|| -> Outcome {
            d.set_context(main)?;
            for _ in 0..rounds {
                give(d, take(d, 3, 50 * MIB)?)?;
                sleep_ms(1);
            }
            Ok(())
        });
        for round in 0..rounds {
            let context = d.create_context(0)?;
            give(d, take(d, 3, 30 * MIB)?)?;
            std::thread::sleep(Duration::from_micros(500 + 97 * (round as u64 % 40)));
            end(d, context)?;
        }
        other.join().expect("no program panics")?;
        Ok(true)
    });
    ok_if(seen?, "")
}

/// The primary context ends and begins again.
fn primary(d: &Driver, rounds: usize) -> Outcome<String> {
    for round in 0..rounds {
        give(d, take(d, 3, 50 * MIB)?)?;
        std::thread::sleep(Duration::from_micros(500 + 97 * (round as u64 % 40)));
        // SAFETY: the function takes a number.
        cachealloc_tests::driver::check(unsafe { (d.functions.cuDevicePrimaryCtxReset)(0) })?;
        d.use_device(0)?;
    }
    Ok("ok".into())
}

/// The primary context ends and is retained again, by calls that bypass the library. The offsets of
/// these functions in the driver's file are given.
fn ends_unseen(d: &Driver, places: &[String]) -> Outcome<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    let line = maps.lines().find(|line| line.ends_with("libcuda.so")).expect("the driver");
    let base = line.split('-').next().and_then(|text| usize::from_str_radix(text, 16).ok());
    let place = |index: usize| base.expect("an address") + places[index].parse::<usize>().unwrap();
    type Call = unsafe extern "C" fn(usize, usize) -> i32;
    // SAFETY: functions of the driver that take one or two words.
    let call = |index: usize, first: usize, second: usize| unsafe {
        cachealloc_tests::driver::check(std::mem::transmute::<usize, Call>(place(index))(
            first, second,
        ))
    };
    let looks = || d.calls("cuCtxGetId");
    give(d, take(d, 3, 50 * MIB)?)?;
    call(0, 0, 0)?;
    sleep_ms(20);
    let before = looks();
    sleep_ms(100);
    if looks() != before {
        return Ok("FAIL, a call reached a context that has ended".into());
    }
    let (mut context, mut address) = (0_u64, 0_u64);
    call(1, &raw mut context as usize, 0)?;
    d.set_context(context)?;
    // Allocates at the addresses of the freed memory.
    call(2, &raw mut address as usize, 50 * MIB)?;
    sleep_ms(100);
    ok_if(call(3, address as usize, 0).is_ok(), "memory of another context was released")
}

/// Ends while memory is being released.
fn leave(d: &Driver, us: usize) -> Outcome<String> {
    give(d, take(d, 5, 100 * MIB)?)?;
    std::thread::sleep(Duration::from_micros(us as u64));
    Ok("ok".into())
}

fn end(d: &Driver, context: u64) -> Outcome {
    // SAFETY: the function takes a handle.
    cachealloc_tests::driver::check(unsafe { (d.functions.cuCtxDestroy)(context) })
}
