//! Writes a trace packet by packet, each text once.

use std::collections::HashMap;
use std::io::{self, Write};
use std::mem;

use prost::Message;

use super::schema::{
    ChildTracksOrdering, CounterDescriptor, DebugAnnotation, InternedData, InternedText, Packets,
    SequenceFlags, TracePacket, TrackDescriptor, TrackEvent, Type, Unit, Value,
};

/// Parent of the outermost tracks.
pub(super) const ROOT: u64 = 0;

/// Kind of a track. The tracks of a device are shown in this order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Device,
    Counter,
    Annotations,
    /// Blocks of a library.
    Blocks,
    /// Blocks of a call site.
    Site,
}

pub(super) struct Trace<W> {
    out: W,
    tracks_count: u64,
    names: Numbers,
    categories: Numbers,
    keys: Numbers,
    texts: Numbers,
    /// Texts to intern with the next packet.
    new: InternedData,
    has_begun: bool,
    buffer: Vec<u8>,
}

impl<W: Write> Trace<W> {
    pub(super) fn new(out: W) -> Trace<W> {
        let [names, categories, keys, texts] = <[Numbers; 4]>::default();
        let (new, buffer) = (InternedData::default(), Vec::new());
        Trace {
            out,
            tracks_count: 0,
            names,
            categories,
            keys,
            texts,
            new,
            has_begun: false,
            buffer,
        }
    }

    /// Writes a new track within another and returns its number.
    pub(super) fn track(&mut self, within: u64, kind: Kind, name: &str) -> io::Result<u64> {
        self.tracks_count += 1;
        let ordering = match kind {
            Kind::Device => ChildTracksOrdering::Explicit,
            Kind::Blocks => ChildTracksOrdering::Chronological,
            _ => ChildTracksOrdering::Unknown,
        };
        let counter = CounterDescriptor { unit: Unit::SizeBytes.into() };
        let track_descriptor = Some(TrackDescriptor {
            uuid: self.tracks_count,
            name: name.into(),
            parent_uuid: within,
            counter: (kind == Kind::Counter).then_some(counter),
            child_ordering: ordering.into(),
            sibling_order_rank: kind as i32,
        });
        self.write(TracePacket { track_descriptor, ..TracePacket::default() })?;
        Ok(self.tracks_count)
    }

    /// Writes an event. The slices of a track must nest and be written in the order of their begins
    /// and ends.
    pub(super) fn event(&mut self, time_us: u64, event: TrackEvent) -> io::Result<()> {
        // Perfetto's times are signed.
        let time_ns = time_us.saturating_mul(1000).min(i64::MAX as u64);
        let (timestamp, track_event) = (Some(time_ns), Some(event));
        self.write(TracePacket { timestamp, track_event, ..TracePacket::default() })
    }

    pub(super) fn count(&mut self, counter: u64, time_us: u64, value: i64) -> io::Result<()> {
        let event =
            TrackEvent { counter_value: Some(value), ..TrackEvent::of(counter, Type::Counter) };
        self.event(time_us, event)
    }

    /// Interns the name of a slice or a mark.
    pub(super) fn name(&mut self, text: &str) -> u64 {
        self.names.of(text, &mut self.new.event_names)
    }

    pub(super) fn category(&mut self, text: &str) -> u64 {
        self.categories.of(text, &mut self.new.event_categories)
    }

    /// Interns a text value.
    pub(super) fn text(&mut self, text: &str) -> u64 {
        self.texts.of(text, &mut self.new.debug_annotation_string_values)
    }

    /// Interns the name of a value.
    pub(super) fn key(&mut self, text: &str) -> Key {
        Key(self.keys.of(text, &mut self.new.debug_annotation_names))
    }

    fn write(&mut self, packet: TracePacket) -> io::Result<()> {
        let flags = if mem::replace(&mut self.has_begun, true) {
            SequenceFlags::NeedsIncrementalState
        } else {
            SequenceFlags::IncrementalStateCleared
        };
        let is_new = self.new != InternedData::default();
        let packet = TracePacket {
            trusted_packet_sequence_id: SEQUENCE,
            sequence_flags: flags.into(),
            interned_data: is_new.then(|| mem::take(&mut self.new)),
            ..packet
        };
        // Concatenated pieces of a message form one message.
        self.buffer.clear();
        let encoded = Packets { packet: vec![packet] }.encode(&mut self.buffer);
        encoded.map_err(io::Error::other)?;
        self.out.write_all(&self.buffer)
    }
}

/// The only sequence. It cannot be 0, which means none.
const SEQUENCE: u32 = 1;

/// Interned name of a value.
#[derive(Clone, Copy)]
pub(super) struct Key(u64);

impl Key {
    pub(super) fn number(self, value: u64) -> DebugAnnotation {
        DebugAnnotation { name_iid: self.0, value: Some(Value::Number(value)) }
    }

    pub(super) fn address(self, value: u64) -> DebugAnnotation {
        DebugAnnotation { name_iid: self.0, value: Some(Value::Address(value)) }
    }

    /// Makes a value of an interned text.
    pub(super) fn text(self, value: u64) -> DebugAnnotation {
        DebugAnnotation { name_iid: self.0, value: Some(Value::Text(value)) }
    }
}

/// Numbers of the texts that were written. 0 means none.
#[derive(Default)]
struct Numbers(HashMap<String, u64>);

impl Numbers {
    fn of(&mut self, text: &str, new: &mut Vec<InternedText>) -> u64 {
        if let Some(&number) = self.0.get(text) {
            return number;
        }
        let iid = self.0.len() as u64 + 1;
        self.0.insert(text.to_string(), iid);
        new.push(InternedText { iid, text: text.to_string() });
        iid
    }
}
