//! Results of a program, line by line: `LINE CODE WORDS`.

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

/// The word that marks a query whose answer was chance.
pub const BY_CHANCE: u64 = 1;

/// A file that gets a line for each line of the program as it is played, so that it contains
/// everything before a crash or a hang.
pub struct Log(Mutex<File>);

impl Log {
    pub fn create(path: &str) -> Result<Log, String> {
        let file = File::create(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(Log(Mutex::new(file)))
    }

    pub fn write(&self, record: &Record) {
        let mut text = format!("{} {}", record.line, record.code);
        record.words.iter().for_each(|word| text += &format!(" {word}"));
        text.push('\n');
        let mut file = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // The comparison notices a log that cannot be written.
        let _ = file.write_all(text.as_bytes());
    }
}

/// Logged results, by line.
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
