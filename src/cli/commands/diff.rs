//! `cachealloc diff`: the changes from one snapshot to another.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cachealloc_analysis::model::Snapshot;
use cachealloc_analysis::names::Names;
use cachealloc_analysis::{Aggregate, SiteChange, When, difference};
use clap::Args;

use super::Result;
use super::top_sites::{Unit, moment};
use crate::failure::Failure;
use crate::show::sites::{self, others, place};
use crate::show::{Column, Table, bytes, count, signed, signed_bytes};
use crate::snapshots;

/// List the call sites that hold more or less in the later of two snapshots.
///
/// Compare one process at two times, or two runs. For two versions of a program, --group function
/// matches sites whose lines have moved.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Earlier snapshot.
    #[arg(value_name = "A")]
    before: PathBuf,
    /// Later snapshot.
    #[arg(value_name = "B")]
    after: PathBuf,
    /// Time in both histories: end, peak, oom (the last failed allocation), a time since the first
    /// entry (2.5s, 300ms), or an entry (#1200).
    #[arg(long, value_name = "TIME", value_parser = moment, default_value = "end")]
    at: When,
    /// Group allocations by whole stack, allocating line, its function, the function that the
    /// thread runs, or the range that the program has named (cachealloc_range_push).
    #[arg(long, visible_alias = "by", value_enum, default_value_t = Unit::Stack)]
    group: Unit,
    /// Number of sites to list; 0 for all.
    #[arg(short = 'n', long = "number", value_name = "N", default_value_t = 20)]
    number: usize,
    /// Print JSON, with whole stacks.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let mut common = Snapshot::default();
    let mut gather = |path: &Path| -> Result<Aggregate> {
        let mut aggregate = Aggregate::new(arguments.group.group());
        aggregate.add(&mut common, &snapshots::read(path)?, arguments.at, None);
        if aggregate.devices.is_empty() && arguments.at == When::Shortage {
            let problem = format!("{}: no allocation failed in this history", path.display());
            return Err(Failure::new(problem).next("compare the peaks with --at peak"));
        }
        Ok(aggregate)
    };
    let before = gather(&arguments.before)?;
    let after = gather(&arguments.after)?;
    let names = Names::of(&common);
    let group = arguments.group.group();
    let mut changes = difference(&common, &names, group, &before, &after);
    for change in &mut changes {
        change.site.stack = group.stack_of_all(&mut common, &names, change.site.stack);
    }
    let names = Names::of(&common);
    if arguments.json {
        let shown = if arguments.number == 0 { changes.len() } else { arguments.number };
        let shown = &changes[..shown.min(changes.len())];
        super::print(&sites::json_of_changes(&common, &names, [&before, &after], shown)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    super::print_lines(&text(&arguments, &common, &names, &before, &after, &changes))?;
    Ok(ExitCode::SUCCESS)
}

fn text(
    arguments: &Arguments,
    common: &Snapshot,
    names: &Names,
    before: &Aggregate,
    after: &Aggregate,
    changes: &[SiteChange],
) -> String {
    let [held_before, held_after] = [before, after].map(|it| it.totals().live_bytes);
    let growth = i128::from(held_after) - i128::from(held_before);
    let when = match arguments.at {
        When::End => "at the end",
        When::Peak => "at the peak",
        When::Shortage => "when the last allocation failed",
        When::Entry(_) | When::AfterUs(_) => "at that time",
    };
    let [a, b] = [held_before, held_after].map(bytes);
    let mut text = format!("held {when}: {a}, then {b}: {}\n", signed_bytes(growth));
    if held_before == 0 && held_after == 0 && arguments.at == When::End {
        text += "both hold nothing at the end; compare the peaks with --at peak\n";
    }
    if changes.is_empty() {
        return text + "no call site holds more or less\n";
    }
    let mut table = Table::new([
        Column::number("CHANGE"),
        Column::number("BEFORE"),
        Column::number("AFTER"),
        Column::number("BLOCKS"),
        Column::text(""),
        Column::text("LIBRARY"),
        Column::text("WHERE"),
    ])
    .dropping(&["BEFORE", "AFTER", "LIBRARY", "BLOCKS"]);
    let shown = if arguments.number == 0 { changes.len() } else { arguments.number };
    for change in changes.iter().take(shown) {
        let state = match (change.is_new(), change.is_gone()) {
            (true, _) => "new",
            (_, true) => "gone",
            _ => "",
        };
        table.row([
            signed_bytes(change.growth_bytes()),
            bytes(change.before.live_bytes),
            bytes(change.site.totals.live_bytes),
            signed(change.growth_count(), count),
            state.to_string(),
            common.texts.get(change.site.category).to_string(),
            place(common, names, &change.site),
        ]);
    }
    let _ = write!(text, "\n{}", table.text());
    if shown < changes.len() {
        let rest = changes[shown..].iter().map(SiteChange::growth_bytes).sum();
        let _ = writeln!(text, "{} at {}", signed_bytes(rest), others(changes.len() - shown));
    }
    text
}
