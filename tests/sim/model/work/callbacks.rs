//! The driver's own threads: host functions, destructors of user objects, and idle time.
//!
//! Host functions run here because they may block, and because driver calls from them must be
//! refused. When the program makes no call for a while, the thread lets virtual time pass: a
//! program may poll pinned memory without ever calling the driver.
//!
//! The destructor of a launched object runs late, in a separate thread, in the order in which the
//! objects ended (measured: 5 ms later). The destructor of an object that was never launched runs
//! at once (measured), but no order with other threads follows from that: here it runs even later,
//! also in a separate thread.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, Once, mpsc};
use std::time::{Duration, Instant};

use super::op::{HostWork, OpRef};
use crate::model::races::clock::Clock;
use crate::model::world;

pub struct Job {
    pub op: OpRef,
    pub work: HostWork,
}

pub struct Destructor {
    pub function: usize,
    pub data: usize,
    /// Clock of the launches that kept the object, which have ended by now. `None` if there was no
    /// launch.
    pub launches: Option<Clock>,
}

/// A thread that runs destructors, and its delay.
struct Late {
    name: &'static str,
    by: Duration,
    sender: Mutex<Option<mpsc::Sender<(Instant, Destructor)>>>,
}

static LAUNCHED: Late = Late::new("late destructors", Duration::from_millis(1));
static NEVER_LAUNCHED: Late = Late::new("later destructors", Duration::from_millis(2));

/// Separate from the world's lock, which is held while jobs are pushed.
static QUEUE: Mutex<Vec<Job>> = Mutex::new(Vec::new());
static PUSHED: Condvar = Condvar::new();
static STARTED: Once = Once::new();

thread_local! {
    /// The operation whose host function this thread is running.
    static RUNNING: RefCell<Option<OpRef>> = const { RefCell::new(None) };
    static INSIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    static DESTRUCTS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether this thread is inside a host function or destructor, where calls are refused.
pub fn inside() -> bool {
    INSIDE.get()
}

/// Whether this thread is inside a destructor, from which no program has a reason to call.
pub fn inside_destructor() -> bool {
    DESTRUCTS.get()
}

pub fn running_op() -> Option<OpRef> {
    RUNNING.with_borrow(Clone::clone)
}

pub fn push(job: Job) {
    QUEUE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(job);
    PUSHED.notify_one();
    start();
}

/// Queues a destructor after the last reference to its object is gone. May be called with the
/// world's lock held.
pub fn destruct(destructor: Destructor) {
    let late = if destructor.launches.is_some() { &LAUNCHED } else { &NEVER_LAUNCHED };
    late.run(destructor);
}

impl Late {
    const fn new(name: &'static str, by: Duration) -> Late {
        Late { name, by, sender: Mutex::new(None) }
    }

    fn run(&'static self, destructor: Destructor) {
        let mut sender = self.sender.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let sender = sender.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::channel::<(Instant, Destructor)>();
            let serve = move || {
                for (due, destructor) in receiver {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    run_destructor(destructor);
                }
            };
            start_thread(self.name, serve);
            sender
        });
        sender.send((Instant::now() + self.by, destructor)).expect("its thread never ends");
    }
}

/// Starts the thread, once.
pub fn start() {
    STARTED.call_once(|| {
        start_thread("simulated driver", serve);
    });
}

/// Starts a thread with all signals blocked from its first instruction: signals belong to the
/// program's threads.
fn start_thread(name: &str, serve: impl FnOnce() + Send + 'static) {
    // SAFETY: sets of signals for this thread only, whose own set is restored below.
    let before = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        before
    };
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(serve).expect("a thread of the driver");
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
}

fn serve() {
    let idle = Duration::from_millis(world::config().idle_ms);
    let mut seen = u64::MAX;
    loop {
        let queue = QUEUE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (mut queue, timeout) = PUSHED
            .wait_timeout_while(queue, idle, |queue| queue.is_empty())
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let jobs = std::mem::take(&mut *queue);
        drop(queue);
        if timeout.timed_out() && jobs.is_empty() {
            seen = pass_idle_time(seen);
        }
        jobs.into_iter().for_each(run);
    }
}

/// Lets time pass if no call has come since the last check. Returns the value to compare next time.
fn pass_idle_time(seen: u64) -> u64 {
    let mut world = world::lock();
    if world.calls_count == seen && world.waiters == 0 {
        world.poll_spinners();
        while world.step() {}
    }
    let now = world.calls_count;
    drop(world);
    world::changed().notify_all();
    now
}

fn run_destructor(Destructor { function, data, launches }: Destructor) {
    INSIDE.set(true);
    // A thread that learns of the destructor knows that the launches have ended.
    launches.iter().for_each(|known| {
        world::lock().host.clock.join(known);
    });
    DESTRUCTS.set(true);
    // SAFETY: the program gave this destructor, of this signature, for this pointer.
    unsafe {
        let function: unsafe extern "C" fn(*mut u8) = std::mem::transmute(function);
        function(data as *mut u8);
    }
    DESTRUCTS.set(false);
    INSIDE.set(false);
}

fn run(Job { op, work }: Job) {
    INSIDE.set(true);
    RUNNING.set(Some(op.clone()));
    call_host_function(work);
    RUNNING.set(None);
    world::lock().host_function_done(op);
    world::changed().notify_all();
    INSIDE.set(false);
}

fn call_host_function(work: HostWork) {
    let data = work.data as *mut u8;
    match work.callback_stream {
        None => {
            // SAFETY: the program gave this function, of this signature, for this pointer.
            unsafe {
                let function: unsafe extern "C" fn(*mut u8) = std::mem::transmute(work.function);
                function(data);
            }
        }
        Some(stream) => {
            // SAFETY: as above; a stream callback has two more arguments.
            unsafe {
                let function: unsafe extern "C" fn(u64, i32, *mut u8) =
                    std::mem::transmute(work.function);
                function(stream, 0, data);
            }
        }
    }
}
