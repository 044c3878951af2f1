//! The behaviour of the allocator, rule by rule, as programs and drawings.

mod sizes;

mod tags;

mod misses;

mod oversize;

mod garbage;

mod pressure;

mod room;

mod arenas;

mod arriving;

mod budgets;

mod exact;

mod captures;

mod chunks;

mod exported_blocks;
mod giving;

mod idle;

mod excess;
