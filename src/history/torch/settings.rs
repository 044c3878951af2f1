//! Allocator settings in the form that PyTorch's tools show.

use std::io::{self, Write};

use super::Writer;
use super::words::*;
use crate::snapshot::EntryList;

impl<W: Write, E: EntryList> Writer<'_, W, E> {
    pub(super) fn settings(&mut self) -> io::Result<()> {
        let settings = &self.snapshot.settings;
        self.pickle.begin_dict()?;
        self.pickle.word(CONFIGURATION)?;
        self.pickle.text(&settings.configuration)?;
        self.pickle.word(MAX_SPLIT_SIZE)?;
        match settings.split_bytes_max {
            Some(bytes) => self.pickle.integer(bytes)?,
            None => self.pickle.minus_one()?,
        }
        self.pickle.word(GARBAGE_COLLECTION_THRESHOLD)?;
        self.pickle.float(settings.garbage_collection_threshold)?;
        self.boolean(EXPANDABLE_SEGMENTS, settings.expandable_segments)?;
        self.boolean(
            GRAPH_CAPTURE_RECORD_STREAM_REUSE,
            settings.graph_capture_record_stream_reuse,
        )?;
        self.pickle.word(ROUNDUP_POWER2_DIVISIONS)?;
        self.pickle.begin_dict()?;
        for (power, &divisions) in settings.roundup_power2_divisions.iter().enumerate() {
            self.pickle.text(&(1u32 << power).to_string())?;
            self.pickle.integer(divisions)?;
        }
        self.pickle.end_dict()?;
        self.settings_that_we_lack()?;
        let dropped_count = self.snapshot.dropped_count();
        self.boolean(TRACE_ALLOC_OVERFLOWED, dropped_count > 0)?;
        self.number(TRACE_ALLOC_MAX_ENTRIES, settings.entries_max)?;
        self.number(TRACE_ALLOC_DROPPED, dropped_count)?;
        self.pickle.word(CACHEALLOC)?;
        let mut more = self.pickle.begin_large_dict()?;
        for (name, value) in &settings.more {
            more.item(&mut self.pickle)?;
            self.pickle.text(name)?;
            self.pickle.text(value)?;
        }
        if self.annotations.dropped_count > 0 {
            more.item(&mut self.pickle)?;
            self.pickle.text("annotations_dropped")?;
            self.pickle.text(&self.annotations.dropped_count.to_string())?;
        }
        more.end(&mut self.pickle)?;
        self.pickle.end_dict()
    }

    /// Writes settings that cachealloc does not have, with PyTorch's defaults: readers expect the
    /// keys.
    fn settings_that_we_lack(&mut self) -> io::Result<()> {
        self.number(PINNED_NUM_REGISTER_THREADS, 1)?;
        self.boolean(RELEASE_LOCK_ON_CUDAMALLOC, false)?;
        self.boolean(PINNED_USE_CUDA_HOST_REGISTER, false)?;
        self.number(MAX_ROUND_THRESHOLD, 0)?;
        self.number(MAX_CACHED_SIZE, 0)
    }
}
