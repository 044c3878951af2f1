//! Memory breakdown of the devices when each file was written, as the table of `cachealloc explain
//! FILE`. It needs no JavaScript.

use cachealloc_analysis::breakdowns;
use cachealloc_statistics::breakdown::{Line, Reconciled};

use crate::inputs::{Input, last_snapshot, same_process};
use crate::text::escaped;

/// Title and class of each column. `narrow-hide` hides it on a phone.
const COLUMNS: [(&str, &str); 5] = [
    ("Bytes", ""),
    ("Share", ""),
    ("Known by", "text narrow-hide"),
    ("Library", "text narrow-hide"),
    ("Memory", "text"),
];

/// Returns the section with its heading. It is empty if no file has more than its segments.
pub(crate) fn section(inputs: &[Input]) -> String {
    let mut tables = String::new();
    // Among several moments of one process, the last one counts; the others are collapsed.
    let last = same_process(inputs).then(|| last_snapshot(inputs).unwrap_or(inputs.len() - 1));
    let mut earlier = String::new();
    for (file, input) in inputs.iter().enumerate().filter(|(_, it)| it.snapshot.is_ours()) {
        let is_earlier = last.is_some_and(|last| last != file);
        let tables = if is_earlier { &mut earlier } else { &mut tables };
        for breakdown in breakdowns(&input.snapshot) {
            let reconciled = breakdown.reconcile(None);
            let device = reconciled.title(None);
            let title = if inputs.len() > 1 { format!("{}, {device}", input.name) } else { device };
            *tables += &table(&title, &reconciled);
        }
    }
    if !earlier.is_empty() {
        tables += &format!("<details><summary>At other moments</summary>{earlier}</details>");
    }
    if tables.is_empty() {
        return tables;
    }
    format!(
        "<section id=\"account\" aria-labelledby=\"account-h\"><h2 id=\"account-h\">Use of the device \
         memory</h2><p>When the file was written. Each row states how it is known. The rest is memory that no call \
         accounts for.</p>{tables}</section>"
    )
}

fn table(title: &str, reconciled: &Reconciled) -> String {
    let title = escaped(title);
    let mut table = format!("<div class=\"table\"><table><caption>{title}</caption>");
    let lines = reconciled.lines().into_iter().map(|line| {
        let Line { bytes, share, known_by, library, memory } = line;
        [bytes, share, known_by.to_string(), library, memory]
    });
    let lines: Vec<[String; 5]> = lines.collect();
    // A column without text is left out, as in the command.
    let shown = |column: usize| lines.iter().any(|line| !line[column].is_empty());
    let columns: Vec<usize> = (0..COLUMNS.len()).filter(|&column| shown(column)).collect();
    let mut row = |tag: &str, cells: [&str; 5]| {
        let cell = |&column: &usize| {
            format!("<{tag} class=\"{}\">{}</{tag}>", COLUMNS[column].1, escaped(cells[column]))
        };
        table += &format!("<tr>{}</tr>", columns.iter().map(cell).collect::<String>());
    };
    row("th", COLUMNS.map(|(title, _)| title));
    lines.iter().for_each(|line| row("td", line.each_ref().map(String::as_str)));
    table += "</table></div>";
    for note in reconciled.notes() {
        table += &format!("<p class=\"soft\">{}</p>", escaped(&note));
    }
    table
}
