//! Names that resemble markup, a script, or a placeholder of the template.

use crate::made::{MIB, Made, small};
use crate::page::{columns, element, head, written};

const NAMES: [&str; 12] = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "-->",
    "<img src=x onerror=alert(1)>",
    "&lt;&amp;",
    "{{BLOB}}",
    "}}{{",
    "\"'`${1}\\",
    "\u{2028}\u{2029}\u{feff}",
    "a\0b\r\n\t\u{1b}[31m",
    "operator<<",
    "http://example.com/x.js",
];

fn hostile(name: &str) -> String {
    let mut made = Made::new();
    let stack = made.stack(&[(name, &format!("/home/{name}.py"), 1)]);
    made.keep(1 << 30, MIB, stack);
    made.keep(1 << 31, MIB, stack);
    made.snapshot.settings.ours.push(("program".to_string(), name.to_string()));
    made.snapshot.settings.all.push((name.to_string(), name.to_string()));
    written(&[made.input(name)])
}

#[test]
fn the_tags_of_the_page_are_the_templates() {
    let harmless = hostile("name");
    let tags = |page: &str| {
        let count = |tag: &str| page.to_ascii_lowercase().matches(tag).count();
        ["<script", "</script", "<!--", "<img", "<style", "</style", "</title", "<link"].map(count)
    };
    for name in NAMES {
        assert_eq!(tags(&hostile(name)), tags(&harmless), "{name:?}");
    }
}

#[test]
fn names_survive_the_page() {
    for name in NAMES {
        let page = hostile(name);
        let strings = columns(&page)["strings"].clone();
        assert!(strings.as_array().expect("a list").iter().any(|text| text == name), "{name:?}");
        assert_eq!(head(&page)["files"][0]["name"], name);
    }
}

#[test]
fn places_of_the_template_are_filled_once() {
    let page = hostile("{{BLOB}}");
    assert_eq!(page.matches(element(&page, "blob")).count(), 1);
    assert!(page.contains("<title>{{BLOB}}</title>"), "a name is a name");
}

#[test]
fn title_of_one_file_is_its_name() {
    assert!(written(&[small().input("a<b>.pickle")]).contains("<title>a&lt;b&gt;.pickle</title>"));
}
