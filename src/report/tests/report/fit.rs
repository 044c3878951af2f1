//! The smallest device on which the run would complete: the section and its sentence.

use cachealloc_analysis::model::{Action, Dropped, StackId};
use cachealloc_report::FitWhen;

use crate::findings::sentences;
use crate::made::{MIB, Made, small};
use crate::page::{written, written_with};

const BEGIN: &str = "<section id=\"fit\"";

/// Returns the contents of the section, or `None` if the page has neither the section nor a link to
/// it.
fn section(page: &str) -> Option<&str> {
    assert_eq!(page.contains(BEGIN), page.contains("href=\"#fit\""));
    let (_, rest) = page.split_once(BEGIN)?;
    Some(rest.split_once("</section>").expect("its end").0)
}

/// Returns the cells of a table, by row.
fn rows(section: &str, name: &str) -> Vec<String> {
    let (_, table) = section.split_once(&format!("aria-label=\"{name}\"")).expect("the table");
    let (table, _) = table.split_once("</table>").expect("its end");
    let cells = |row: &str| {
        let row = row.replace("<wbr>", "");
        let cells = row.split("</td>").filter_map(|cell| cell.rsplit_once('>'));
        cells
            .map(|cell| cell.1.to_string())
            .filter(|cell| !cell.is_empty())
            .collect::<Vec<_>>()
            .join(" | ")
    };
    table.split("<tr>").skip(2).map(cells).collect()
}

#[test]
fn run_that_cannot_fit_names_the_largest_holders() {
    let page = written(&[small().input("small.pickle")]);
    let section = section(&page).expect("it has a history");
    let title = "<h3>device 0: 5 allocations, of which 1 failed, 4.01 GiB at the peak; the recorded run reserved 22.0 MiB</h3>";
    assert!(section.contains(title), "{section}");
    let verdict =
        "cannot fit within 27.0 MiB: it needs 4.01 GiB at once; these call sites hold most";
    assert!(section.contains(verdict), "{section}");
    let holders = rows(section, "Call sites that hold most");
    assert_eq!(
        holders[0],
        "passing user/app.py:7 &lt; main user/app.cu:40 | app | 8.00 MiB | 61.53 % | 1"
    );
    let sets = rows(section, "Sets of options");
    assert!(
        sets.iter()
            .any(|row| row == "the default options | 4,112 MiB | 4,116 MiB | no | - | - | -"),
        "{sets:?}"
    );
    assert!(section.contains("unknown: 1 request failed in the recorded run"), "{section}");
}

/// Leaves one block in each of many segments: only moving memory serves the failed request.
fn scattered() -> Made {
    let mut made = Made::new();
    let stack = made.stack(&[("f", "/u/a.c", 1)]);
    for segment in 0..16u64 {
        made.entry(Action::SegmentAlloc, segment << 30, 20 * MIB, stack);
        for block in 0..10 {
            made.entry(Action::Alloc, (segment << 30) + block * 2 * MIB, 2 * MIB, stack);
        }
    }
    for segment in 0..16u64 {
        for block in 1..10 {
            made.entry(Action::Free, (segment << 30) + block * 2 * MIB, 2 * MIB, StackId::NONE);
        }
        made.segment(segment << 30, 0, &[]);
    }
    made.entry(Action::OutOfMemory, 0, 200 * MIB, stack);
    made.snapshot.devices[0].segments.iter_mut().for_each(|it| it.bytes = 20 * MIB);
    made
}

#[test]
fn the_options_that_would_have_served_it_are_a_finding() {
    let page = written(&[scattered().input("scattered.pickle")]);
    let fits = "fits within 320 MiB with expandable_segments:true";
    let found = sentences(&page);
    assert!(found.contains(&format!("In a replay, the run {fits}.")), "{found:?}");
    let section = section(&page).expect("it has a history");
    assert!(section.contains(&format!("<p>{fits}</p>")), "{section}");
    assert!(!section.contains("hold most"), "{section}");
    // On a phone the name of an option is wrapped between its words.
    assert!(section.contains("<td class=\"text\">expandable_<wbr>segments:true</td>"), "{section}");
    let sets = rows(section, "Sets of options");
    assert!(
        sets[0] == "expandable_segments:true | 320 MiB | 320 MiB | yes | 320 MiB | 0.00 % | 350",
        "{sets:?}"
    );
}

#[test]
fn without_a_history_there_is_no_section() {
    let mut made = small();
    made.edit(Vec::clear);
    assert_eq!(section(&written(&[made.input("state")])), None);
}

/// The search would take longer than everything else together.
#[test]
fn of_long_histories_it_is_left_out() {
    let long = || {
        let mut made = Made::new();
        let stack = made.stack(&[("f", "/u/a.c", 1)]);
        for _ in 0..50_001 {
            made.entry(Action::Alloc, 1 << 30, MIB, stack);
            made.entry(Action::Free, 1 << 30, MIB, StackId::NONE);
        }
        made.input("long <b>.pickle")
    };
    let page = written(&[long()]);
    let why = section(&page).expect("what is left out is said");
    assert!(why.contains("replaying 100,002 entries"), "{why}");
    assert!(
        why.contains("Print it with <code>cachealloc fit long &lt;b&gt;.pickle</code>"),
        "{why}"
    );
    assert!(
        why.contains("<code>cachealloc report --fit</code>") && !why.contains("<table"),
        "{why}"
    );
    let page = written_with(&[long()], FitWhen::Always);
    assert!(section(&page).expect("it is there").contains("<table"));
}

/// The last snapshot of a process has the history of the others; ranks have separate histories.
#[test]
fn each_process_is_replayed_once() {
    let titles = |same: bool| {
        let mut inputs = ["first", "second"].map(|name| small().input(name));
        for (number, input) in inputs.iter_mut().enumerate() {
            let process = if same { "7".to_string() } else { number.to_string() };
            let facts =
                [("host".to_string(), "node".to_string()), ("process".to_string(), process)];
            input.snapshot.settings.ours.extend(facts);
            input.snapshot.settings.dropped = Dropped::Count(0);
        }
        let page = written(&inputs);
        let titles = section(&page).expect("a history").split("<h3>").skip(1);
        titles.map(|it| it.split(':').next().unwrap_or_default().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(titles(true), ["second, device 0"]);
    assert_eq!(titles(false), ["first, device 0", "second, device 0"]);
}
