//! Where the memory of the devices was when each file was written: the table of `cachealloc explain FILE`. It
//! needs no JavaScript.

use cachealloc_analysis::accounts;
use cachealloc_statistics::account::{Line, Settled};

use crate::inputs::Input;
use crate::text::escaped;

const HEAD: &str = "<tr><th>Bytes</th><th>Share</th><th class=\"text\">Known by</th><th class=\"text\">Library</th>\
                    <th class=\"text\">Memory</th></tr>";

/// The section with its heading; empty where no file says more than its segments do.
pub(crate) fn section(inputs: &[Input]) -> String {
    let mut tables = String::new();
    for input in inputs.iter().filter(|input| input.snapshot.is_ours()) {
        for account in accounts(&input.snapshot) {
            let settled = account.settle(None);
            let device = settled.title(None);
            let title = if inputs.len() > 1 { format!("{}, {device}", input.name) } else { device };
            tables += &table(&title, &settled);
        }
    }
    if tables.is_empty() {
        return tables;
    }
    format!(
        "<section id=\"account\" aria-labelledby=\"account-h\"><h2 id=\"account-h\">Where the memory of the device \
         was</h2><p>When the file was written: what the library knows, and how. The rest is what no call tells \
         apart.</p>{tables}</section>"
    )
}

fn table(title: &str, settled: &Settled) -> String {
    let title = escaped(title);
    let mut table = format!("<div class=\"table\"><table><caption>{title}</caption>{HEAD}");
    for Line { bytes, share, known_by, library, memory } in settled.lines() {
        table += &format!("<tr><td>{bytes}</td><td>{share}</td>");
        for text in [known_by, &library, &memory] {
            table += &format!("<td class=\"text\">{}</td>", escaped(text));
        }
        table += "</tr>";
    }
    table += "</table></div>";
    for note in settled.notes() {
        table += &format!("<p class=\"soft\">{}</p>", escaped(&note));
    }
    table
}
