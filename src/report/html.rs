//! Fills the template of the page.

use std::io::{self, Write};

use crate::columns::base64;
use crate::layout::Layout;
use crate::text::escaped;

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// Scripts in the order of their dependencies.
const SCRIPTS: &[&str] = &[
    include_str!("page/common/format.js"),
    include_str!("page/common/data.js"),
    include_str!("page/common/story.js"),
    include_str!("page/common/theme.js"),
    include_str!("page/address.js"),
    include_str!("page/timeline/keys.js"),
    include_str!("page/timeline/groups.js"),
    include_str!("page/common/surface.js"),
    include_str!("page/timeline/timeline.js"),
    include_str!("page/timeline/paint.js"),
    include_str!("page/timeline/blocks.js"),
    include_str!("page/timeline/ooms.js"),
    include_str!("page/timeline/input.js"),
    include_str!("page/timeline/lane.js"),
    include_str!("page/tables/ranges.js"),
    include_str!("page/flame/tree.js"),
    include_str!("page/flame/flame.js"),
    include_str!("page/flame/paint.js"),
    include_str!("page/tables/sites.js"),
    include_str!("page/tables/waste.js"),
    include_str!("page/segments/reserved.js"),
    include_str!("page/segments/between.js"),
    include_str!("page/segments/events.js"),
    include_str!("page/segments/segments.js"),
    include_str!("page/segments/paint.js"),
    include_str!("page/tables/ooms.js"),
    include_str!("page/tables/compare.js"),
    include_str!("page/states.js"),
    include_str!("page/main.js"),
];

/// Writes the page. Inserted text is not searched for placeholders, so it may contain anything.
pub(crate) fn write(layout: &Layout, out: &mut impl Write) -> io::Result<()> {
    let mut rest = TEMPLATE;
    while let Some((before, after)) = rest.split_once("{{") {
        let (place, after) = after.split_once("}}").expect("each place in the template is closed");
        out.write_all(before.as_bytes())?;
        fill(place, layout, out)?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

fn fill(place: &str, layout: &Layout, out: &mut impl Write) -> io::Result<()> {
    match place {
        "TITLE" => write!(out, "{}", escaped(&layout.title)),
        "STYLE" => write!(out, "{STYLE}"),
        "VERSION" => write!(out, env!("CARGO_PKG_VERSION")),
        "FINDINGS" => {
            write!(out, "<ul>")?;
            for finding in &layout.findings {
                write!(out, "<li>{}", escaped(&finding.text))?;
                if let Some((fragment, name)) = &finding.link {
                    write!(out, " <a href=\"#{}\">{name}</a>", escaped(fragment))?;
                }
                write!(out, "</li>")?;
            }
            write!(out, "</ul>")
        }
        "ACCOUNT" => write!(out, "{}", layout.breakdown),
        "ACCOUNT_LINK" if layout.breakdown.is_empty() => Ok(()),
        "ACCOUNT_LINK" => write!(out, "<a href=\"#account\">Device</a>"),
        "FIT" => write!(out, "{}", layout.fit),
        "FIT_LINK" if layout.fit.is_empty() => Ok(()),
        "FIT_LINK" => write!(out, "<a href=\"#fit\">Smaller device</a>"),
        "HEAD" => write!(out, "{}", in_script(&layout.head)),
        "BLOB" => write!(out, "{}", base64(&layout.columns.deflated())),
        "SCRIPT" => SCRIPTS.iter().try_for_each(|script| write!(out, "{script}")),
        _ => unreachable!("the template has no place {place}"),
    }
}

/// Escapes JSON for a `<script>` element. Without this character it cannot contain `</script>` or
/// `<!--`, and in JSON the character occurs only in strings.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}
