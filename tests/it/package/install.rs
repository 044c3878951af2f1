//! Installs from the source tree, and from the tarball.

use std::fs;
use std::path::Path;
use std::process::Command;

use cachealloc_tests::{command, compile, root};

use super::{ok, script, works};
use crate::record::snapshots::Place;
use crate::tree::documents::links_lead_somewhere_in;

/// Counts only files: folders may belong to other packages as well.
fn files(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    entries.map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
}

#[test]
fn installation_works_and_is_removable() {
    let place = Place::new();
    let prefix = place.path.join("usr");
    let prefix_text = prefix.display().to_string();
    let install = |arguments: &[&str]| {
        let built = command().parent().expect("it has a folder").display().to_string();
        let arguments = [arguments, &["--built", &built, &prefix_text]].concat();
        ok(&Command::new(root().join("scripts/package/install.sh"))
            .args(arguments)
            .output()
            .unwrap())
    };
    install(&[]);
    works(&prefix, "lib");
    links_lead_somewhere_in(&prefix.join("share/doc/cachealloc"));
    assert!(prefix.join("share/zsh/site-functions/_cachealloc").is_file());
    install(&["--remove"]);
    assert_eq!(files(&prefix), 0);
}

#[test]
#[ignore = "long tier"]
fn the_tarball_runs_where_it_is_unpacked() {
    let place = Place::new();
    let made = ok(&script(&place, "dist.sh", &[]));
    let name = made.trim_end().rsplit('/').next().expect("a name").replace(".tar.gz", "");
    let version = env!("CARGO_PKG_VERSION");
    let machine = std::env::consts::ARCH;
    assert_eq!(name, format!("cachealloc-{version}-{machine}-linux-glibc2.17"));
    let mut tar = Command::new("tar");
    let unpacked = tar.arg("-xzf").arg(made.trim_end()).current_dir(&place.path).status();
    assert!(unpacked.expect("tar").success());
    let folder = place.path.join(name);
    works(&folder, "lib");
    links_lead_somewhere_in(&folder);
    for (file, wanted) in [
        ("LICENSE-MIT", "The cachealloc authors"),
        ("LICENSE-APACHE", "Apache License"),
        ("README.md", "# cachealloc"),
        ("docs/recipes.md", "# Recipes"),
        ("THIRD-PARTY", "redhook 2"),
        ("THIRD-PARTY", "Redistributions in binary form must reproduce"),
    ] {
        let text = fs::read_to_string(folder.join(file)).expect(file);
        assert!(text.contains(wanted), "{file}");
    }
}

/// The glibc that a program of this machine's compiler needs is newer than the one that the README
/// promises.
#[test]
fn the_promised_glibc_is_held_to() {
    let floor = |file: &Path| {
        Command::new(root().join("scripts/package/glibc-floor.sh"))
            .arg(file)
            .output()
            .expect("the script")
    };
    assert_eq!(ok(&floor(&command())), "2.17\n");
    let output = floor(&compile("triggers.c"));
    let said = String::from_utf8_lossy(&output.stderr);
    let newer = said.contains("and README.md promises 2.17");
    // On a machine with such an old glibc nothing is refused.
    assert_eq!(output.status.success(), !newer, "{said}");
}
