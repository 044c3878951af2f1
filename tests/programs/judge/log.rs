//! What a program saw, line by line: `LINE CODE WORDS`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::Mutex;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub line: usize,
    pub code: i32,
    pub words: Vec<u64>,
}

/// A file that is written in pieces: what came before a crash is there.
pub struct Log(Mutex<(File, String)>);

impl Log {
    pub fn create(path: &str) -> Result<Log, String> {
        let file = File::create(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(Log(Mutex::new((file, String::new()))))
    }

    pub fn write(&self, record: &Record) {
        use std::fmt::Write;
        let mut log = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let text = &mut log.1;
        let _ = write!(text, "{} {}", record.line, record.code);
        record.words.iter().for_each(|word| {
            let _ = write!(text, " {word}");
        });
        text.push('\n');
        if text.len() > PIECE_BYTES {
            flush(&mut log);
        }
    }

    pub fn flush(&self) {
        flush(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }
}

fn flush(log: &mut (File, String)) {
    let text = std::mem::take(&mut log.1);
    // A log that cannot be written is missed by the comparison.
    let _ = log.0.write_all(text.as_bytes());
}

const PIECE_BYTES: usize = 2_000;

/// What was logged, by line.
pub type Seen = BTreeMap<usize, Record>;

pub fn read(path: &str) -> Seen {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(parse).map(|record| (record.line, record)).collect()
}

fn parse(text: &str) -> Option<Record> {
    let mut words = text.split(' ');
    let (line, code) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let words = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    Some(Record { line, code, words })
}
