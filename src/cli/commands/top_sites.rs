//! `cachealloc top-sites`: call sites as a table.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use cachealloc_analysis::model::{GRAPHS, HOST_DEVICE, Snapshot};
use cachealloc_analysis::names::Names;
use cachealloc_analysis::{Aggregate, Group, Site, SiteKey, When};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use super::Result;
use crate::failure::{Failure, USAGE};
use crate::show::sites::{self, Titles, device_line};
use crate::snapshots;

/// List the call sites that hold or allocate the most memory.
///
/// Several snapshots, such as those of the ranks of a job, are added up. The peak is that of each
/// device.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Snapshots of cachealloc or PyTorch.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Order: bytes held at --at (live), bytes held at the peak, total bytes allocated, number of
    /// allocations, or number of temporary allocations; default: peak, or live with --at. Also
    /// accepts the values of --group.
    #[arg(long, value_enum)]
    by: Vec<SortOrGroup>,
    /// Number of call sites to list; 0 for all.
    #[arg(short = 'n', long = "number", value_name = "N", default_value_t = 20)]
    number: usize,
    /// Time of `live`: end, peak, oom (the last failed allocation), a time since the first entry
    /// (2.5s, 300ms), or an entry (#1200).
    #[arg(long, value_name = "TIME", value_parser = moment)]
    at: Option<When>,
    /// Group allocations by whole stack, allocating line, its function, the function that the
    /// thread runs (threads that run the same one are added up), or the range that the program has
    /// named (cachealloc_range_push); default: stack.
    #[arg(long, value_enum)]
    group: Option<Unit>,
    /// List only this device, `host` for host memory that devices can access (pinned, registered),
    /// or `graphs` for memory nodes of graphs.
    #[arg(long, value_name = "N|host|graphs", value_parser = device)]
    device: Option<u32>,
    /// Print JSON, with whole stacks.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortKey {
    Live,
    Peak,
    Allocated,
    Count,
    Temporary,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unit {
    Stack,
    Line,
    Function,
    Thread,
    Range,
}

/// Value of `--by`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SortOrGroup {
    Sort(SortKey),
    Group(Unit),
}

impl ValueEnum for SortOrGroup {
    fn value_variants<'a>() -> &'a [SortOrGroup] {
        static ALL: LazyLock<Vec<SortOrGroup>> = LazyLock::new(|| {
            let orders = SortKey::value_variants().iter().copied().map(SortOrGroup::Sort);
            orders.chain(Unit::value_variants().iter().copied().map(SortOrGroup::Group)).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            SortOrGroup::Sort(order) => order.to_possible_value(),
            SortOrGroup::Group(unit) => unit.to_possible_value(),
        }
    }
}

/// Returns the order and the unit that were given. Each may be given once at most.
fn order_and_unit(by: &[SortOrGroup], group: Option<Unit>) -> Result<(Option<SortKey>, Unit)> {
    let orders = by.iter().filter_map(|by| match by {
        SortOrGroup::Sort(order) => Some(*order),
        SortOrGroup::Group(_) => None,
    });
    let units = by.iter().filter_map(|by| match by {
        SortOrGroup::Sort(_) => None,
        SortOrGroup::Group(unit) => Some(*unit),
    });
    let orders: Vec<SortKey> = orders.collect();
    let units: Vec<Unit> = units.chain(group).collect();
    if orders.len() > 1 || units.len() > 1 {
        let what = if units.len() > 1 { "the grouping of call sites" } else { "the order" };
        return Err(Failure::new(format!("{what} is given twice")).next("omit one").code(USAGE));
    }
    Ok((orders.first().copied(), units.first().copied().unwrap_or(Unit::Stack)))
}

impl SortKey {
    pub(crate) fn by(self) -> SiteKey {
        match self {
            SortKey::Live => SiteKey::Live,
            SortKey::Peak => SiteKey::Peak,
            SortKey::Allocated => SiteKey::Allocated,
            SortKey::Count => SiteKey::Count,
            SortKey::Temporary => SiteKey::Temporary,
        }
    }
}

impl Unit {
    /// Returns the name of a list's unit.
    fn name(self) -> &'static str {
        match self {
            Unit::Range => "range",
            Unit::Thread => "function that the thread runs",
            Unit::Stack | Unit::Line | Unit::Function => "call site",
        }
    }

    pub(crate) fn group(self) -> Group {
        match self {
            Unit::Stack => Group::Stack,
            Unit::Line => Group::Line,
            Unit::Function => Group::Function,
            Unit::Thread => Group::Thread,
            Unit::Range => Group::Range,
        }
    }
}

fn device(text: &str) -> std::result::Result<u32, String> {
    match text {
        "host" => Ok(HOST_DEVICE),
        "graphs" => Ok(GRAPHS),
        number => {
            number.parse().map_err(|_| "expected the number of a device, host or graphs".into())
        }
    }
}

/// Parses a time, for the arguments of all commands.
pub(crate) fn moment(text: &str) -> std::result::Result<When, String> {
    When::parse(text).ok_or_else(|| format!("expected {}", cachealloc_analysis::WHEN_ALLOWED))
}

/// Combines `--by` and `--at`.
pub(crate) fn order(by: Option<SortKey>, at: Option<When>) -> Result<(SiteKey, When)> {
    match (by.map(SortKey::by), at) {
        (None, None) => Ok((SiteKey::Peak, When::Peak)),
        (None | Some(SiteKey::Live), Some(at)) => Ok((SiteKey::Live, at)),
        (Some(SiteKey::Live), None) => Ok((SiteKey::Live, When::End)),
        (Some(by), None) => Ok((by, When::Peak)),
        (Some(_), Some(_)) => {
            let failure = Failure::new("--at applies to --by live only");
            Err(failure.next("omit one of them").code(USAGE))
        }
    }
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let (by, unit) = order_and_unit(&arguments.by, arguments.group)?;
    let (by, at) = order(by, arguments.at)?;
    let mut common = Snapshot::default();
    let mut aggregate = Aggregate::new(unit.group());
    let mut head = String::new();
    for path in &arguments.files {
        let snapshot = snapshots::read(path)?;
        let begin = aggregate.devices.len();
        aggregate.add(&mut common, &snapshot, at, arguments.device);
        let file = (arguments.files.len() > 1).then(|| path.display().to_string());
        for device in &aggregate.devices[begin..] {
            let _ = writeln!(head, "{}", device_line(file.as_deref(), device));
        }
        head += &sites::notes(&snapshot, &aggregate.devices[begin..]);
    }
    if aggregate.devices.is_empty() {
        return Err(nothing(at, arguments.device));
    }
    let mut names = Names::of(&common);
    let weight = |site: &Site| by.weight(&site.totals);
    let mut sites = aggregate.grouped(&common, &names, unit.group(), |it| by.weight(it));
    sites.retain(|site| weight(site) > 0);
    // The sort is stable: among equals, the first to allocate comes first.
    sites.sort_by_key(|site| std::cmp::Reverse((weight(site), site.totals.allocated_bytes)));
    for site in &mut sites {
        site.stack = unit.group().stack_of_all(&mut common, &names, site.stack);
    }
    names = Names::of(&common);
    let shown = if arguments.number == 0 { sites.len() } else { arguments.number.min(sites.len()) };
    if arguments.json {
        super::print(&sites::json(&common, &names, &aggregate, by, &sites[..shown])?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let title = Titles::of(by, at);
    if sites.is_empty() {
        let _ = writeln!(head, "\n{}: nothing", title.what);
    } else {
        let _ = writeln!(head, "\n{}, by {}:\n", title.what, unit.name());
        head += &sites::table(&common, &names, by, &sites, shown);
    }
    super::print_lines(&head)?;
    Ok(ExitCode::SUCCESS)
}

fn nothing(at: When, device: Option<u32>) -> Failure {
    match (at, device) {
        (When::Shortage, _) => no_such_time(),
        (_, Some(HOST_DEVICE)) => Failure::new("the snapshot has no memory of the host")
            .next("omit --device to see all devices"),
        (_, Some(GRAPHS)) => Failure::new("the snapshot has no memory nodes of graphs")
            .next("omit --device to see all devices"),
        (_, Some(device)) => Failure::new(format!("the snapshot has no device {device}"))
            .next("omit --device to see all"),
        (_, None) => Failure::new("the snapshot has neither segments nor entries")
            .next("start the program with: cachealloc run --record"),
    }
}

/// Reports that no allocation failed, the only time that may be missing.
pub(crate) fn no_such_time() -> Failure {
    Failure::new("no allocation failed in this history").next("show the peak with --at peak")
}
