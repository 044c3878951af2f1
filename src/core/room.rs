//! How much a program may lose to holes, measured by the memory that there is.
//!
//! Note [Room]. Free memory inside of a segment that is partly in use serves only what fits there, and
//! cannot go back. Natively there are no such holes. So a program that needs nearly all of its *room*,
//! the limit or the device, completes only if the holes are few at its peak, and nothing says
//! beforehand when that is. Where there is plenty, holes are the price of few calls to the driver.
//!
//! So once a third of the room is reserved, the holes may take 1/512 of it. A large request that would
//! leave more, because it cuts a whole free segment or begins one for several, is *spared* that: it gets a
//! segment of its own, which natively would have cost a call too. Holes that are there serve as ever. Within
//! a limit so low that a single segment for several could be too much, no large requests share one.
//!
//! A program whose sizes never repeat would pay that call for each request, for ever. So the calls are counted:
//! 512 while it grows, then one for each 4,096 requests. More are worth it only where memory really is short:
//! from the moment when what is in use takes 7/8 of the room. It will again, in the next step of a training run.
//!
//! What the driver refuses shows how large the room is now: other processes may hold the rest. What it gives
//! beyond that shows that they have gone.

/// Once this part of the room is reserved, holes count.
const SAVED_FROM_PART: u64 = 3;
/// Holes may take this part of it.
const HOLES_PART: u64 = 512;
/// Memory is short once all but this part of it was in use.
const SHORT_PART: u64 = 8;
/// So many calls to the driver may be made although free memory could have served, and one more for
/// each so many requests.
const SPARED_COUNT: u64 = 512;
const REQUESTS_PER_SPARED: u64 = 4096;

#[derive(Clone, Default)]
pub(crate) struct Room {
    /// To the caller's knowledge: the limit, else the device.
    known_bytes: Option<u64>,
    /// As refusals show it; at most that.
    bytes: Option<u64>,
    /// So much of it is reserved that holes count.
    is_saved: bool,
    spared_count: u64,
}

impl Room {
    pub(crate) fn set(&mut self, known_bytes: Option<u64>) {
        (self.known_bytes, self.bytes) = (known_bytes, known_bytes);
    }

    pub(crate) fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    #[inline]
    pub(crate) fn is_saved(&self) -> bool {
        self.is_saved
    }

    /// The driver has refused what would have come to so many bytes.
    pub(crate) fn is_below(&mut self, bytes: u64) {
        self.bytes = self.bytes.map(|room_bytes| room_bytes.min(bytes));
    }

    /// So much is reserved now.
    pub(crate) fn reserved(&mut self, reserved_bytes: u64) {
        if self.bytes.is_some_and(|bytes| reserved_bytes > bytes) {
            self.bytes = self.known_bytes;
        }
        let saved_from = self.bytes.map_or(u64::MAX, |bytes| bytes / SAVED_FROM_PART);
        self.is_saved = reserved_bytes >= saved_from;
    }

    pub(crate) fn are_holes_too_much(&self, holes_bytes: u64) -> bool {
        self.is_saved && self.bytes.is_some_and(|bytes| holes_bytes > bytes / HOLES_PART)
    }

    /// Whether a call to the driver may be made although free memory could serve. Always, where nothing is known.
    pub(crate) fn may_spare(&self, requests_count: u64, active_bytes_peak: u64) -> bool {
        let counted_max = SPARED_COUNT + requests_count / REQUESTS_PER_SPARED;
        self.spared_count < counted_max || self.is_short(active_bytes_peak)
    }

    /// Such a call was made.
    pub(crate) fn count_spared(&mut self, active_bytes_peak: u64) {
        self.spared_count += u64::from(!self.is_short(active_bytes_peak));
    }

    /// Whether so much is in use that natively hardly more would be possible, for all that is known.
    fn is_short(&self, active_bytes_peak: u64) -> bool {
        self.bytes.is_none_or(|bytes| active_bytes_peak >= bytes - bytes / SHORT_PART)
    }
}
