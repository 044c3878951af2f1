//! The page needs no other file and no network, and its scripts never make markup out of text.

use crate::made::small;
use crate::page::written;

#[test]
fn nothing_is_loaded() {
    let page = written(&[small().input("small.pickle")]);
    for loads in
        ["http://", "https://", "<link", "src=", "@import", "url(", "import(", "fetch(", "XMLHttp"]
    {
        assert!(!page.contains(loads), "the page has {loads}");
    }
    // The browser enforces that.
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn scripts_make_no_markup_of_text() {
    let page = written(&[small().input("small.pickle")]);
    for makes in [
        "innerHTML =",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
    ] {
        assert!(!page.contains(makes), "the page has {makes}");
    }
}

#[test]
fn every_script_is_in_the_page() {
    let page = written(&[small().input("small.pickle")]);
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page")];
    let mut scripts_count = 0;
    while let Some(folder) = folders.pop() {
        let files = std::fs::read_dir(&folder).expect("a folder");
        let paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        assert!(paths.len() <= 20, "{} has many files", folder.display());
        for path in paths {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("text");
            let name = path.display();
            if path.extension().is_some_and(|extension| extension != "html") {
                assert!(page.contains(&text), "{name} is not in the page");
                scripts_count += 1;
            }
            assert!(text.lines().count() <= 300, "{name} is long");
        }
    }
    assert!(scripts_count > 20, "only {scripts_count} scripts were found");
}
