//! A model of the order of operations, accurate enough that most programs are valid. A run without
//! the library decides whether a program is valid.

/// Number of operations of each lane that lie in the past. A lane is one stream for the whole
/// program.
#[derive(Clone, Default, Debug)]
pub struct Clock(Vec<u32>);

impl Clock {
    pub fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own = (*own).max(*other));
    }

    /// Whether the clock contains no operation.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }

    pub fn count(&self, lane: usize) -> u32 {
        self.0.get(lane).copied().unwrap_or(0)
    }

    /// Returns the first lane of which this clock contains fewer operations than the other.
    pub fn lacks(&self, other: &Clock) -> Option<usize> {
        (0..other.0.len()).find(|lane| self.count(*lane) < other.0[*lane])
    }

    fn advance(&mut self, lane: usize) {
        if self.0.len() <= lane {
            self.0.resize(lane + 1, 0);
        }
        self.0[lane] += 1;
    }

    fn only(lane: usize, count: u32) -> Clock {
        let mut clock = Clock(vec![0; lane + 1]);
        clock.0[lane] = count;
        clock
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneKind {
    Legacy,
    Blocking,
    NonBlocking,
}

struct Lane {
    ctx: usize,
    kind: LaneKind,
    clock: Clock,
}

#[derive(Default)]
pub struct Order {
    lanes: Vec<Lane>,
    pub host: Clock,
}

impl Order {
    pub fn lane(&mut self, ctx: usize, kind: LaneKind) -> usize {
        self.lanes.push(Lane { ctx, kind, clock: Clock::default() });
        self.lanes.len() - 1
    }

    pub fn ctx_of(&self, lane: usize) -> usize {
        self.lanes[lane].ctx
    }

    /// Returns the operations that precede an operation submitted to this lane now.
    pub fn past(&self, lane: usize) -> Clock {
        let Lane { ctx, kind, clock } = &self.lanes[lane];
        let mut past = clock.clone();
        past.join(&self.host);
        let meets = |other: &&Lane| match kind {
            LaneKind::Legacy => other.kind != LaneKind::NonBlocking,
            LaneKind::Blocking => other.kind == LaneKind::Legacy,
            LaneKind::NonBlocking => false,
        };
        let of_context = self.lanes.iter().filter(|other| other.ctx == *ctx);
        of_context.filter(meets).for_each(|other| past.join(&other.clock));
        past
    }

    /// Submits an operation, and returns the clock that later operations must cover.
    pub fn submit(&mut self, lane: usize) -> Clock {
        let mut clock = self.past(lane);
        clock.advance(lane);
        let count = clock.count(lane);
        self.lanes[lane].clock = clock;
        Clock::only(lane, count)
    }

    /// Adds a point to the lane that is not work: no other lane waits because of it.
    pub fn mark(&mut self, lane: usize) -> Clock {
        self.lanes[lane].clock.advance(lane);
        let count = self.lanes[lane].clock.count(lane);
        Clock::only(lane, count)
    }

    pub fn wait(&mut self, lane: usize, clock: &Clock) {
        self.lanes[lane].clock.join(clock);
    }

    /// Records that the host has waited for all work of a context.
    pub fn waited_for_context(&mut self, ctx: usize) {
        for lane in self.lanes.iter().filter(|lane| lane.ctx == ctx) {
            self.host.join(&lane.clock);
        }
    }

    /// Records that the host has waited for a stream: for its own work, and on the legacy stream
    /// for that of all blocking streams.
    pub fn waited_for(&mut self, lane: usize) {
        let over = match self.lanes[lane].kind {
            LaneKind::Legacy => self.past(lane),
            _ => self.lanes[lane].clock.clone(),
        };
        self.host.join(&over);
    }

    /// Returns the part of a clock that belongs to other contexts.
    pub fn outside(&self, clock: &Clock, ctx: usize) -> Clock {
        let mut outside = clock.clone();
        for (lane, count) in outside.0.iter_mut().enumerate() {
            if self.lanes[lane].ctx == ctx {
                *count = 0;
            }
        }
        outside
    }
}
