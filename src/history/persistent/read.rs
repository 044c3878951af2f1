//! Reads the file that a killed process left. The file may have been changed since. Whatever it
//! contains, reading it ends with a result or an error, and takes memory and time in proportion to
//! what is stored.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Display, Formatter};
use std::io;

use super::layout::*;
use super::log::{self, Module, PIECE_WORDS, PythonText};
use crate::entry::{Action, Entry, NO_RANGE, StackId};
use crate::rows::CHUNK_ROWS;
use crate::snapshot::{Clock, HOST_DEVICE};

/// Random access to the file.
pub trait ReadAt {
    /// Fills the buffer; bytes past the end of the file read as zeros.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Returns the number of bytes that are stored, without holes.
    fn stored_bytes(&self) -> u64;
}

#[derive(Debug)]
pub enum Problem {
    /// The file is not of this kind.
    Other,
    /// The file was written by another version of the library.
    OtherLayout,
    /// The contents of the file are inconsistent.
    Damaged(&'static str),
    Unreadable(io::Error),
}

impl Display for Problem {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Other => write!(out, "is not the history of a killed process"),
            Problem::OtherLayout => {
                write!(
                    out,
                    "was written by another version of the library: use the command that came with it"
                )
            }
            Problem::Damaged(what) => write!(out, "is damaged: {what}"),
            Problem::Unreadable(error) => write!(out, "cannot be read: {error}"),
        }
    }
}

/// Owner of the file: the process, its start and its namespace, as for live files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileOwner {
    pub process_id: u32,
    pub start: u64,
    pub namespace: u64,
}

/// Contents of the file.
pub struct Leftover {
    pub file_owner: FileOwner,
    /// Recording level; see `WORD_LEVEL`.
    pub level: u64,
    pub from_start: bool,
    pub clock: Clock,
    pub entries_max: u64,
    pub owners: Vec<Owner>,
    pub stacks: HashMap<StackId, Vec<u64>>,
    /// Modules by start address and first epoch.
    pub modules: BTreeMap<(u64, u32), Module>,
    pub python: HashMap<u64, PythonText>,
    pub settings: Vec<(String, String)>,
}

/// The part of one context, or of memory that the driver itself holds on a device or the host.
#[derive(Default)]
pub struct Owner {
    /// Ordinal of the device, or [`HOST_DEVICE`].
    pub device: u32,
    pub is_foreign: bool,
    pub entries: Vec<Entry>,
    pub dropped_count: u64,
    /// Whether the last entry is complete even if the process was killed while it wrote the next
    /// one.
    pub last_is_whole: bool,
    pub blocks: Vec<BlockRow>,
    pub segments: Vec<SegmentRow>,
}

/// Maximum number of devices; more means that the file is damaged.
const DEVICES_MAX: u64 = 1024;
/// Maximum ratio of the chunks' size to the stored bytes; a file above it is rejected.
const HOLES_MAX: u64 = 64;

pub fn read(file: &dyn ReadAt) -> Result<Leftover, Problem> {
    let head = words(file, 0, HEAD_WORDS)?;
    if head[WORD_MAGIC] != MAGIC {
        return Err(Problem::Other);
    }
    if head[WORD_LAYOUT] != LAYOUT {
        return Err(Problem::OtherLayout);
    }
    let chunks_max = head[WORD_CHUNKS_MAX];
    if chunks_max > CHUNKS_MAX as u64 {
        return Err(Problem::Damaged("it would have too many chunks"));
    }
    let file = Chunks::of(file, chunks_max as usize)?;
    let mut leftover = Leftover {
        file_owner: FileOwner {
            process_id: head[WORD_PROCESS] as u32,
            start: head[WORD_START],
            namespace: head[WORD_NAMESPACE],
        },
        level: head[WORD_LEVEL],
        from_start: head[WORD_FROM_START] == 1,
        clock: Clock { time_ns: head[WORD_TIME_NS], epoch_us: head[WORD_EPOCH_US] },
        entries_max: head[WORD_ENTRIES_MAX],
        owners: Vec::new(),
        stacks: HashMap::new(),
        modules: BTreeMap::new(),
        python: HashMap::new(),
        settings: Vec::new(),
    };
    let owners = words(file.file, OWNERS_AT, OWNERS_MAX * OWNER_WORDS)?;
    for (number, owner) in owners.as_chunks::<OWNER_WORDS>().0.iter().enumerate() {
        if owner[OWNER_KIND] != 0 && owner[OWNER_ON] == 1 {
            leftover.owners.push(file.owner(number, owner)?);
        }
    }
    for chunk in file.of_kind(LOG, 0) {
        let words = file.chunk_words(chunk)?;
        for piece in words.as_chunks::<PIECE_WORDS>().0 {
            log::records(piece).for_each(|record| leftover.note(record));
        }
    }
    Ok(leftover)
}

impl Leftover {
    /// Returns the module that was at this address in that epoch.
    pub fn module_at(&self, address: u64, epoch: u32) -> Option<&Module> {
        /// A process has one module at a time at an address. Others were there earlier, or end
        /// before the address.
        const LOOKS_MAX: usize = 1000;
        let below = self.modules.range(..=(address, epoch)).rev().take(LOOKS_MAX);
        let mut below = below.map(|(_, module)| module);
        below.find(|it| it.range.contains(&address) && (it.epochs.0..=it.epochs.1).contains(&epoch))
    }

    fn note(&mut self, (kind, number, words): (u8, u32, &[u64])) {
        match kind {
            log::STACK => _ = self.stacks.insert(StackId(number), words.to_vec()),
            log::MODULE => {
                let module = Module::from_words(words);
                self.modules.extend(module.map(|it| ((it.range.start, it.epochs.0), it)));
            }
            log::PYTHON => {
                let text = PythonText::from_words(words);
                self.python.extend(text.map(|text| (text.word, text)));
            }
            log::SETTING => self.settings.extend(log::texts(words)),
            _ => {}
        }
    }
}

/// The file, and the places of its chunks.
struct Chunks<'a> {
    file: &'a dyn ReadAt,
    chunks_max: usize,
    /// Index of each chunk by kind, owner and number.
    places: BTreeMap<(u8, usize, usize), usize>,
}

impl Chunks<'_> {
    fn of(file: &dyn ReadAt, chunks_max: usize) -> Result<Chunks<'_>, Problem> {
        let mut places = BTreeMap::new();
        let table = words(file, TABLE_AT, chunks_max)?;
        for (place, &word) in table.iter().enumerate().filter(|(_, word)| **word != 0) {
            if places.insert(chunk_of(word), place).is_some() {
                return Err(Problem::Damaged("a chunk is there twice"));
            }
        }
        let chunks_bytes = (places.len() * CHUNK_BYTES) as u64;
        if chunks_bytes / HOLES_MAX > file.stored_bytes() {
            return Err(Problem::Damaged("it has little but holes"));
        }
        Ok(Chunks { file, chunks_max, places })
    }

    fn of_kind(&self, kind: u8, owner: usize) -> impl Iterator<Item = usize> {
        let from = (kind, owner, 0);
        self.places.range(from..=(kind, owner, usize::MAX)).map(|(_, place)| *place)
    }

    fn chunk_words(&self, place: usize) -> Result<Vec<u64>, Problem> {
        let at = chunks_at(self.chunks_max) + place * CHUNK_BYTES;
        words(self.file, at, CHUNK_BYTES / 8)
    }

    fn owner(&self, number: usize, words: &[u64; OWNER_WORDS]) -> Result<Owner, Problem> {
        if words[OWNER_DEVICE] >= DEVICES_MAX {
            return Err(Problem::Damaged("a device has a number that none has"));
        }
        let (pushed, max) = (words[OWNER_PUSHED], words[OWNER_ENTRIES_MAX].max(1));
        // The next entry replaces the oldest, and may already have begun to.
        let first = if pushed < max { 0 } else { pushed - max + 1 };
        let mut owner = Owner {
            device: match words[OWNER_KIND] {
                OWNER_HOST => HOST_DEVICE,
                _ => words[OWNER_DEVICE] as u32,
            },
            is_foreign: matches!(words[OWNER_KIND], OWNER_FOREIGN | OWNER_HOST),
            dropped_count: first,
            last_is_whole: pushed > 0 && max > 1,
            ..Owner::default()
        };
        if pushed < max || pushed == 0 {
            owner.dropped_count = 0;
        }
        self.read_entries(number, first..pushed, max, &mut owner.entries)?;
        for chunk in self.of_kind(BLOCKS, number) {
            let words = self.chunk_words(chunk)?;
            let rows = words.as_chunks::<ROW_WORDS>().0.iter().map(block);
            owner.blocks.extend(rows.filter(|row| row.state != FREE));
        }
        for chunk in self.of_kind(SEGMENTS, number) {
            let words = self.chunk_words(chunk)?;
            let rows = words.as_chunks::<ROW_WORDS>().0.iter().map(segment);
            owner.segments.extend(rows.filter(|row| row.flags & IS_THERE != 0));
        }
        Ok(owner)
    }

    fn read_entries(
        &self,
        owner: usize,
        wanted: std::ops::Range<u64>,
        max: u64,
        entries: &mut Vec<Entry>,
    ) -> Result<(), Problem> {
        let mut there = None;
        let mut words = Vec::new();
        for number in wanted {
            let slot = usize::try_from(number % max).unwrap_or(usize::MAX);
            let chunk = slot / CHUNK_ROWS;
            if there != Some(chunk) {
                let place = self.places.get(&(ENTRIES, owner, chunk));
                let place = place.ok_or(Problem::Damaged("entries are missing"))?;
                words = self.chunk_words(*place)?;
                there = Some(chunk);
            }
            let row = &words.as_chunks::<ROW_WORDS>().0[slot % CHUNK_ROWS];
            entries.push(entry(row).ok_or(Problem::Damaged("an entry says nothing"))?);
        }
        Ok(())
    }
}

const ROW_WORDS: usize = 5;

fn entry(&[time_ns, address, bytes, stream, last]: &[u64; ROW_WORDS]) -> Option<Entry> {
    let [stack, action] = halves(last);
    // The bits above the action's byte are unused.
    let action = *Action::ALL.get(usize::from(action as u8))?;
    (time_ns != 0).then_some(Entry {
        time_ns,
        address,
        bytes,
        stream,
        stack: StackId(stack),
        action,
        // The name is no longer known.
        entered: 0,
        range: NO_RANGE,
    })
}

fn block(&[address, bytes, requested_bytes, stream, last]: &[u64; ROW_WORDS]) -> BlockRow {
    let [stack, state] = halves(last);
    BlockRow { address, bytes, requested_bytes, stream, stack: StackId(stack), state }
}

fn segment(&[address, bytes, stream, pool_id, last]: &[u64; ROW_WORDS]) -> SegmentRow {
    let [stack, flags] = halves(last);
    SegmentRow { address, bytes, stream, pool_id, stack: StackId(stack), flags }
}

/// Returns the two numbers of a word in memory order.
fn halves(word: u64) -> [u32; 2] {
    let bytes = word.to_ne_bytes();
    let (halves, _) = bytes.as_chunks::<4>();
    [u32::from_ne_bytes(halves[0]), u32::from_ne_bytes(halves[1])]
}

fn words(file: &dyn ReadAt, at: usize, count: usize) -> Result<Vec<u64>, Problem> {
    let mut bytes = vec![0; count * 8];
    file.read_at(at as u64, &mut bytes).map_err(Problem::Unreadable)?;
    Ok(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}
