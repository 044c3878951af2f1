//! Expands the file name that the user gives (`dump-%h-%r-%p.pickle`), and determines the rank of
//! this process in its job. A preloaded library runs in every process of a job, on every host of
//! it, and all of them get the same template.
//!
//! | piece | becomes |
//! |---|---|
//! | `%p` | the process id |
//! | `%h` | the host's name |
//! | `%r` | the rank in the job |
//! | `%n` | the number of the file, counted by the process |
//! | `%%` | `%` |
//!
//! A process without a rank omits `%r` together with one separator (`-`, `_` or `.`): the one
//! before it, or the one after it if `%r` begins the name. So `dump-%r-%p` becomes `dump-17`, and
//! `%r.pickle` becomes `pickle`.

use std::fmt::{self, Display, Formatter};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Text(String),
    ProcessId,
    Host,
    Rank,
    Sequence,
}

/// Values of the pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts<'a> {
    pub process_id: u32,
    pub host: &'a str,
    pub rank: Option<u32>,
    pub sequence: u64,
}

/// Why a template is invalid, and where: an offset in bytes from 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    pub position: usize,
    pub what: String,
}

impl Display for Problem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.position, self.what)
    }
}

impl std::error::Error for Problem {}

impl Template {
    pub fn parse(template: &str) -> Result<Template, Problem> {
        let problem = |position, what| Err(Problem { position, what });
        if template.is_empty() {
            return problem(0, "the file name is empty".into());
        }
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut letters = template.char_indices();
        while let Some((position, letter)) = letters.next() {
            let piece = match letter {
                '\0' => return problem(position, "a name cannot contain a zero byte".into()),
                '%' => match letters.next() {
                    Some((_, '%')) => None,
                    Some((_, 'p')) => Some(Piece::ProcessId),
                    Some((_, 'h')) => Some(Piece::Host),
                    Some((_, 'r')) => Some(Piece::Rank),
                    Some((_, 'n')) => Some(Piece::Sequence),
                    Some((_, other)) => {
                        let what = format!("unknown %{other}; known are {PIECES}");
                        return problem(position, what);
                    }
                    None => return problem(position, format!("incomplete %; known are {PIECES}")),
                },
                _ => None,
            };
            match piece {
                None => text.push(letter),
                Some(piece) => {
                    push_text(&mut pieces, std::mem::take(&mut text));
                    pieces.push(piece);
                }
            }
        }
        push_text(&mut pieces, text);
        Ok(Template { pieces })
    }

    pub fn expand(&self, facts: &Facts) -> String {
        let mut name = String::new();
        // Whether the next text loses the separator that it begins with.
        let mut skip_separator = false;
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) if skip_separator => {
                    name.push_str(text.strip_prefix(SEPARATORS).unwrap_or(text));
                }
                Piece::Text(text) => name.push_str(text),
                Piece::ProcessId => name.push_str(&facts.process_id.to_string()),
                Piece::Host => name.push_str(&host_for_file_name(facts.host)),
                Piece::Sequence => name.push_str(&facts.sequence.to_string()),
                Piece::Rank => match facts.rank {
                    Some(rank) => name.push_str(&rank.to_string()),
                    None => {
                        skip_separator = leave_out(&mut name);
                        continue;
                    }
                },
            }
            skip_separator = false;
        }
        name
    }
}

/// Returns the rank of this process in its job, from the variables that launchers set. `lookup`
/// reads an environment variable. A variable that holds no number is ignored.
pub fn rank(lookup: impl Fn(&str) -> Option<String>) -> Option<u32> {
    RANK_VARIABLES.iter().find_map(|variable| lookup(variable)?.trim().parse().ok())
}

/// torchrun's variable comes first: torchrun is the innermost launcher where one starts another.
const RANK_VARIABLES: [&str; 6] = [
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "SLURM_PROCID",
];

const PIECES: &str = "%p (process id), %h (host), %r (rank), %n (number of the file), %%";
const SEPARATORS: [char; 3] = ['-', '_', '.'];
const HOST_BYTES_MAX: usize = 64;

fn push_text(pieces: &mut Vec<Piece>, text: String) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
}

/// Removes the separator before an omitted piece. Returns `true` if the separator after it must be
/// removed instead.
fn leave_out(name: &mut String) -> bool {
    if name.is_empty() || name.ends_with('/') {
        return true;
    }
    if name.ends_with(SEPARATORS) {
        name.pop();
    }
    false
}

/// Returns the host name for use in a file name: a host name can hold any character, but the result
/// must neither contain `/` nor be hidden.
fn host_for_file_name(host: &str) -> String {
    let allowed =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let letters = host.chars().map(|letter| if allowed(letter) { letter } else { '_' });
    let name: String = letters.take(HOST_BYTES_MAX).collect();
    match name.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None if name.is_empty() => "unknown".into(),
        None => name,
    }
}
