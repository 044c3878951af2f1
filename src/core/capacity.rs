//! How much a program may lose to holes, relative to its capacity.
//!
//! Note [Capacity]. Free memory inside of a segment that is partly in use serves only what fits
//! there, and cannot be released. On the plain driver there are no such holes. So a program that
//! needs nearly all of its *capacity*, the limit or the device, completes only if the holes are few
//! at its peak, and that peak cannot be predicted. Where memory is plentiful, holes are the price
//! of few calls to the driver.
//!
//! So once a third of the capacity is reserved, the holes may take 1/512 of it. A large request
//! that would leave more, because it cuts a whole free segment or begins one for several, *avoids
//! the split*: it gets a separate segment, which in the driver would have cost a call too. Existing
//! holes serve as ever. Within a limit so low that a single segment for several could be too much,
//! no large requests share one.
//!
//! A program whose sizes never repeat would pay that call for every request. So the calls are
//! counted: 512 while it grows, then one for each 4,096 requests, and 16 for each refusal when
//! nothing is left to release, which shows that memory is short, and not only held by the cache.
//! More are worth it only where the holes would take more than a quarter of the *slack*, which is
//! what the program's peak so far leaves of 31/32 of the capacity: it will come to that peak again,
//! in the next step of a training run, or, where sizes never repeat, to a higher one.
//!
//! A refusal by the driver shows how large the capacity is now: other processes may hold the rest.
//! A reservation beyond that shows that they have gone.

/// Once this part of the capacity is reserved, holes count.
const SAVED_FROM_PART: u64 = 3;
/// Holes may take this part of the capacity.
const HOLES_PART: u64 = 512;
/// The part of the capacity that does not count as slack. The slack is what a program's peak leaves
/// of the rest.
const MARGIN_PART: u64 = 32;
/// Holes may take this part of the slack without harm.
const SLACK_PART: u64 = 4;
/// Memory is plentiful while this part of the capacity is not reserved.
const PLENTY_PART: u64 = 8;
/// Number of driver calls that may be made although free memory could have served. The two
/// constants below add one for a number of requests, and some for each refusal when nothing is left
/// to release.
const SPARED_COUNT: u64 = 512;
const REQUESTS_PER_SPARED: u64 = 4096;
const SPARED_PER_REFUSAL: u64 = 16;

#[derive(Clone, Default)]
pub(crate) struct Capacity {
    /// The capacity as the caller knows it: the limit, else the device.
    known_bytes: Option<u64>,
    /// The capacity as refusals show it; at most the known one.
    bytes: Option<u64>,
    /// Whether so much of the capacity is reserved that holes count.
    is_saved: bool,
    avoided_splits_count: u64,
    refusals_count: u64,
}

impl Capacity {
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

    /// Returns whether so much of the capacity is not reserved that memory may be held back to save
    /// calls. Always `true` if the capacity is unknown.
    pub(crate) fn is_plentiful(&self, reserved_bytes: u64) -> bool {
        self.bytes.is_none_or(|bytes| reserved_bytes < bytes - bytes / PLENTY_PART)
    }

    /// Records that a reservation up to this total was refused.
    pub(crate) fn is_below(&mut self, bytes: u64) {
        self.bytes = self.bytes.map(|capacity_bytes| capacity_bytes.min(bytes));
    }

    /// Records a refusal although nothing was left to release.
    pub(crate) fn is_short(&mut self) {
        self.refusals_count += 1;
    }

    /// Records how much is reserved now.
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

    /// Returns whether a driver call may be made although free memory could serve, with holes of
    /// this size. Always `true` if the capacity is unknown.
    pub(crate) fn may_avoid_split(
        &self,
        requests_count: u64,
        holes_bytes: u64,
        active_bytes_peak: u64,
    ) -> bool {
        let earned_count = requests_count / REQUESTS_PER_SPARED;
        let counted_max = SPARED_COUNT + earned_count + self.refusals_count * SPARED_PER_REFUSAL;
        self.avoided_splits_count < counted_max
            || self.are_holes_harmful(holes_bytes, active_bytes_peak)
    }

    /// Counts such a call.
    pub(crate) fn count_avoided_split(&mut self, holes_bytes: u64, active_bytes_peak: u64) {
        self.avoided_splits_count +=
            u64::from(!self.are_holes_harmful(holes_bytes, active_bytes_peak));
    }

    fn are_holes_harmful(&self, holes_bytes: u64, active_bytes_peak: u64) -> bool {
        self.bytes.is_none_or(|bytes| {
            let slack_bytes = (bytes - bytes / MARGIN_PART).saturating_sub(active_bytes_peak);
            holes_bytes > slack_bytes / SLACK_PART
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A multiple of this is divisible by 3 and 512, and by 32 after that.
    const UNIT: u64 = 3 * 512 * 32;

    /// Random capacities, near each bound: each answer is what Note [Capacity] says, in its
    /// numbers.
    #[test]
    fn capacity_matches_its_documentation() {
        let mut number = 1_u64;
        let mut random = |below: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (number >> 33) % below
        };
        let mut capacity = Capacity::default();
        let (mut known, mut shown, mut avoided_splits_count, mut refusals_count) =
            (None, None, 0, 0);
        for _ in 0..20_000 {
            match random(8) {
                0 => {
                    (capacity, avoided_splits_count, refusals_count) = (Capacity::default(), 0, 0);
                    known = [None, Some(UNIT * (1 + random(3)))][random(4).min(1) as usize];
                    shown = known;
                    capacity.set(known);
                }
                1 => {
                    let bytes = UNIT * random(4);
                    shown = shown.map(|shown: u64| shown.min(bytes));
                    capacity.is_below(bytes);
                }
                2 => {
                    refusals_count += 1;
                    capacity.is_short();
                }
                _ => {}
            }
            let reserved_bytes = (UNIT / 3 * random(10) + random(3)).saturating_sub(1);
            capacity.reserved(reserved_bytes);
            if shown.is_some_and(|shown| reserved_bytes > shown) {
                shown = known;
            }
            assert_eq!(capacity.bytes(), shown);
            let is_saved = shown.is_some_and(|shown| 3 * reserved_bytes >= shown);
            assert_eq!(capacity.is_saved(), is_saved);
            let near_bytes = (shown.unwrap_or(UNIT) / 8 * 7 + random(3)).saturating_sub(1);
            let is_plentiful = shown.is_none_or(|shown| 8 * near_bytes < 7 * shown);
            assert_eq!(capacity.is_plentiful(near_bytes), is_plentiful);

            let (bytes, peak_bytes) = (shown.unwrap_or(UNIT), UNIT * random(4) / 2);
            let slack_bytes = (bytes / 32 * 31).saturating_sub(peak_bytes);
            let bound = [bytes / 512, slack_bytes / 4][random(2) as usize];
            let holes_bytes = (bound + random(3)).saturating_sub(1);
            let is_too_much = is_saved && 512 * holes_bytes > bytes;
            assert_eq!(capacity.are_holes_too_much(holes_bytes), is_too_much);
            let is_harmful = shown.is_none() || 4 * holes_bytes > slack_bytes;
            for _ in 0..[1, 20, 520][random(3) as usize] {
                capacity.count_avoided_split(holes_bytes, peak_bytes);
                avoided_splits_count += u64::from(!is_harmful);
            }
            let requests_count = (4096 * random(600)).saturating_sub(random(2));
            let counted_max = 512 + requests_count / 4096 + 16 * refusals_count;
            let may_avoid_split = avoided_splits_count < counted_max || is_harmful;
            assert_eq!(
                capacity.may_avoid_split(requests_count, holes_bytes, peak_bytes),
                may_avoid_split
            );
        }
    }
}
