//! `cachealloc record`: starts or stops recording in a running program.

use std::process::ExitCode;

use cachealloc_options::{Record, StackContext, StackKind, Word};
use cachealloc_statistics::control::{Change, ControlCommand};
use cachealloc_text::{cut, plain};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};

use crate::commands::Result;
use crate::commands::control::Target;
use crate::failure::Failure;
use crate::live::Recording;
use crate::show::count;

/// No genuine library sends longer words.
const LETTERS_MAX: usize = 200;

/// Start or stop recording in a running program.
///
/// Omitted settings keep their values. Existing records are kept, except that entries are dropped
/// if --max-entries or ACTION changes. `off` drops everything. Memory allocated before recording
/// started has no stack in snapshots.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Record every allocation and free (on), only the stacks of live blocks (state), or nothing.
    what: What,
    /// Entries that get a stack.
    #[arg(long, value_parser = PossibleValuesParser::new(words::<StackContext>()))]
    context: Option<String>,
    /// Frames that a stack contains.
    #[arg(long, value_parser = PossibleValuesParser::new(words::<StackKind>()))]
    stacks: Option<String>,
    /// Maximum entries kept for each context.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=cachealloc_options::ENTRIES_MAX))]
    max_entries: Option<u64>,
    /// Drop everything recorded so far.
    #[arg(long)]
    clear: bool,
    /// Record all devices again, after --device.
    #[arg(long, conflicts_with = "device")]
    all_devices: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    #[value(alias = "all")]
    On,
    Off,
    State,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let session = arguments.target.find()?;
    let record = match arguments.what {
        What::On => Record::All,
        What::Off => Record::Off,
        What::State => Record::State,
    };
    let device = match (arguments.target.device, arguments.all_devices) {
        (Some(device), _) => Some(Some(device)),
        (None, all) => all.then_some(None),
    };
    let change = Change {
        record,
        context: arguments.context.as_deref().and_then(Word::of),
        stacks: arguments.stacks.as_deref().and_then(Word::of),
        max_entries: arguments.max_entries,
        device,
        clear: arguments.clear,
    };
    session.give(ControlCommand::Record(change), "its recording is unchanged")?;
    let now = session.statistics()?.recording;
    let is = now.as_ref().map_or("off", |now| &now.record);
    let text = now.as_ref().map_or("nothing".to_string(), Recording::in_words);
    let text = plain(&cut(&text, LETTERS_MAX)).into_owned();
    let process = session.process.0;
    if is != record.word() {
        return Err(Failure::new(format!("process {process} now records {text}"))
            .next("another command changed it, or the process is out of memory"));
    }
    crate::commands::print(&format!("process {process} records {text}\n"))?;
    Ok(ExitCode::SUCCESS)
}

impl Recording {
    fn in_words(&self) -> String {
        let what = match self.record.as_str() {
            "state" => "the stacks of live blocks",
            _ => "every allocation and free",
        };
        let device = self.device.map_or(String::new(), |device| format!(" of device {device}"));
        let entries = match self.record.as_str() {
            "state" => String::new(),
            _ => format!(", up to {} entries of each context", count(self.max_entries)),
        };
        let (context, stacks) = (&self.context, &self.stacks);
        format!("{what}{device} (context {context}, stacks {stacks}){entries}")
    }
}

fn words<T: Word>() -> Vec<&'static str> {
    T::ALL.iter().map(|(_, word)| *word).collect()
}
