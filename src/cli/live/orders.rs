//! Orders to a running process, by the same file: how they get there is said in
//! `cachealloc_statistics::page`.

use std::fs::TryLockError;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use cachealloc_statistics::orders::{ORDER_BYTES, Order};
use cachealloc_statistics::page::{BELL_OFFSET, DONE_OFFSET, ORDER_OFFSET, ORDERS_OFFSET};

use super::{LOOK_EVERY, Live, Problem, WRITES_FOR};

/// Why an order was not carried out.
#[derive(Debug)]
pub(crate) enum Refusal {
    Problem(Problem),
    /// Another sender holds the lock.
    Others,
    /// It has begun, and does not come to an end.
    Unfinished,
    /// The process says no, with this `errno`.
    No(i32),
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        Refusal::Problem(problem)
    }
}

impl Live {
    /// Has the process carry an order out. Where it does not even begin, the order is taken back.
    pub(crate) fn order(&self, order: Order, deadline: Instant) -> Result<(), Refusal> {
        self.lock(deadline)?;
        let result = self.give(order, deadline);
        let _ = self.file.unlock();
        result
    }

    fn give(&self, order: Order, deadline: Instant) -> Result<(), Refusal> {
        let failed = |error| Refusal::Problem(Problem::Refused(error));
        self.write_order(order.to_bytes()).map_err(failed)?;
        self.page.ring(ORDERS_OFFSET).map_err(failed)?;
        let number = self.head()?.orders;
        self.page.ring(BELL_OFFSET).map_err(failed)?;
        loop {
            let head = self.head()?;
            if head.done == number {
                return if head.result == 0 {
                    Ok(())
                } else {
                    Err(Refusal::No(head.result as i32))
                };
            }
            if self.has_ended() {
                return Err(Refusal::Problem(Problem::Ended));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.process.is_stopped() {
                break;
            }
            self.page.sleep(DONE_OFFSET, head.done, left.min(LOOK_EVERY));
        }
        self.write_order([0; ORDER_BYTES]).map_err(failed)?;
        let head = self.head()?;
        match (head.begun == number, head.done == number) {
            (_, true) if head.result == 0 => Ok(()),
            (true, _) => Err(Refusal::Unfinished),
            (false, _) => Err(Refusal::Problem(Problem::Silent)),
        }
    }

    fn write_order(&self, order: [u8; ORDER_BYTES]) -> io::Result<()> {
        self.file.write_all_at(&order, ORDER_OFFSET as u64)
    }

    fn lock(&self, deadline: Instant) -> Result<(), Refusal> {
        loop {
            match self.file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::Error(error)) => return Err(Problem::Refused(error).into()),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(Refusal::Others);
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(WRITES_FOR),
            }
        }
    }
}
