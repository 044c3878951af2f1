//! Smallest device on which the run would complete, as the tables of `cachealloc fit FILE`. It
//! needs no JavaScript.

use cachealloc_analysis::{Site, SiteKey};
use cachealloc_fit::{DeviceFit, Holders, Question};
use cachealloc_text::{bytes, count, cut, share};

use crate::inputs::{Input, last_snapshot};
use crate::text::escaped;

/// When histories are replayed, which takes longer than the rest of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FitWhen {
    /// If all histories together have at most 100,000 entries.
    Short,
    Always,
}

/// Most entries that are replayed, which takes a second on two processors.
const ENTRIES_MAX: usize = 100_000;

/// Number of holders shown, the default of the command.
const HOLDERS_SHOWN: usize = 5;

/// Longest place shown. C++ names may be arbitrarily long.
const PLACE_CHARS_MAX: usize = 400;

/// Title and class of a column. `narrow-hide` hides it on a phone.
type Column = (&'static str, &'static str);

const SETS: [Column; 7] = [
    ("Options", "text"),
    ("Least limit", ""),
    ("Least device", ""),
    ("Completes", "narrow-hide"),
    ("Reserved", "narrow-hide"),
    ("Fragmented", "narrow-hide"),
    ("Driver calls", "narrow-hide"),
];
const HOLDERS: [Column; 5] = [
    ("Where", "text"),
    ("Library", "text narrow-hide"),
    ("Bytes", ""),
    ("Share", ""),
    ("Blocks", "narrow-hide"),
];

/// The smallest size for each device, by number of its file and ordinal.
pub(crate) struct Fits {
    of_devices: Vec<(usize, u32, DeviceFit)>,
    /// The number of entries, if it was too large to replay them.
    left_out: Option<usize>,
}

impl Fits {
    /// Replays the inputs. Among several moments of one process, only the last is replayed: it has
    /// the history of the others.
    pub(crate) fn of(inputs: &[Input], when: FitWhen) -> Fits {
        let last = last_snapshot(inputs);
        let is_shown = |file: &usize| last.is_none_or(|last| last == *file);
        let files = || (0..inputs.len()).filter(is_shown);
        let entries_count: usize = files().map(|file| inputs[file].snapshot.entries_count()).sum();
        if when == FitWhen::Short && entries_count > ENTRIES_MAX {
            return Fits { of_devices: Vec::new(), left_out: Some(entries_count) };
        }
        let question = Question { sets: &[], device_bytes: None, with_failed: true };
        let of_file = |file: usize| {
            let fits = DeviceFit::all(&inputs[file].snapshot, question, |_| true);
            fits.into_iter().map(move |(device, fit)| (file, device, fit))
        };
        Fits { of_devices: files().flat_map(of_file).collect(), left_out: None }
    }

    pub(crate) fn of_device(&self, file: usize, device: usize) -> Option<&DeviceFit> {
        let is_it = |fit: &&(usize, u32, DeviceFit)| (fit.0, fit.1 as usize) == (file, device);
        self.of_devices.iter().find(is_it).map(|(_, _, fit)| fit)
    }

    /// Returns the section with its heading. It is empty if no file has a history.
    pub(crate) fn section(&self, inputs: &[Input]) -> String {
        let content = match self.left_out {
            Some(entries_count) => left_out(inputs, entries_count),
            None => self.tables(inputs),
        };
        if content.is_empty() {
            return content;
        }
        format!(
            "<section id=\"fit\" aria-labelledby=\"fit-h\"><h2 id=\"fit-h\">Smallest device for this run</h2>\
             {content}</section>"
        )
    }

    fn tables(&self, inputs: &[Input]) -> String {
        let tables = self.of_devices.iter().map(|(file, device, fit)| {
            let input = &inputs[*file];
            let title = fit.title(*device);
            let title = if inputs.len() > 1 { format!("{}, {title}", input.name) } else { title };
            of_device(&title, input, *device, fit)
        });
        let tables: String = tables.collect();
        if tables.is_empty() {
            return tables;
        }
        format!(
            "<p>The history was replayed through the allocator of the library. For each set of options: the smallest limit \
             (gpu_memory_limit_mb) and the smallest device with which it completes, and its memory use with plenty of \
             memory or, after a failed allocation, with the memory available then. <code>cachealloc fit</code> prints \
             the same, also for other devices and options.</p>{tables}"
        )
    }
}

fn of_device(title: &str, input: &Input, device: u32, fit: &DeviceFit) -> String {
    let holders = Holders::of(&input.snapshot, device, fit);
    let mut html = format!("<h3>{}</h3>", escaped(title));
    if let Some(verdict) = fit.verdict_text() {
        let whose = holders.as_ref().map_or("", |_| "; these call sites hold most");
        html += &format!("<p>{}{whose}</p>", escaped(&verdict));
    }
    if let Some(holders) = &holders {
        html += &table("Call sites that hold most", HOLDERS, holder_rows(holders));
    }
    let sets =
        fit.rows().map(|[limit, device, completes, reserved, fragmented, calls, options]| {
            [options, limit, device, completes, reserved, fragmented, calls]
        });
    html += &table("Sets of options", SETS, sets);
    for note in fit.notes() {
        html += &format!("<p class=\"soft\">{}</p>", escaped(&note));
    }
    html
}

fn holder_rows(holders: &Holders) -> impl Iterator<Item = [String; 5]> {
    let Holders { common, names, sites } = holders;
    let held = |site: &Site| SiteKey::Live.weight(&site.totals);
    let all: u128 = sites.iter().map(|site| u128::from(held(site))).sum();
    sites.iter().take(HOLDERS_SHOWN).map(move |site| {
        let part = share(held(site) as f64 / all as f64);
        let library = common.texts.get(site.category).to_string();
        let place = cut(&names.place(common, site.stack), PLACE_CHARS_MAX).into_owned();
        [place, library, bytes(held(site)), part, count(site.totals.live_count)]
    })
}

fn table<const N: usize>(
    name: &str,
    columns: [Column; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut table = format!("<div class=\"table\"><table aria-label=\"{name}\"><tr>");
    for (title, class) in columns {
        table += &format!("<th class=\"{class}\">{title}</th>");
    }
    table += "</tr>";
    for row in rows {
        table += "<tr>";
        for ((_, class), cell) in columns.iter().zip(row) {
            table += &format!("<td class=\"{class}\">{}</td>", breakable(&escaped(&cell)));
        }
        table += "</tr>";
    }
    table + "</table></div>"
}

/// Lets the names of options wrap at their parts on a narrow page.
fn breakable(html: &str) -> String {
    html.replace('_', "_<wbr>")
}

fn left_out(inputs: &[Input], entries_count: usize) -> String {
    let all = count(entries_count as u64);
    let commands = match inputs {
        [only] => format!("<code>cachealloc fit {}</code>", escaped(&only.name)),
        _ => "<code>cachealloc fit</code>, for each file,".to_string(),
    };
    format!(
        "<p>Left out, because replaying {all} entries under many sets of options takes seconds. Print it with {commands}; \
         include it here with <code>cachealloc report --fit</code>.</p>"
    )
}
