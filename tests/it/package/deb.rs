//! The Debian package: installed, run and removed by dpkg in a folder, and free of lintian's
//! complaints.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cachealloc_tests::skipped;

use super::{ok, packing, script, works};
use crate::record::snapshots::Place;
use crate::tree::documents::links_lead_somewhere_in;

fn make(place: &Place) -> PathBuf {
    PathBuf::from(ok(&script(place, "deb.sh", &[])).trim_end())
}

fn tool(program: &str, arguments: &[&str], file: &Path) -> String {
    ok(&Command::new(program).args(arguments).arg(file).output().expect(program))
}

fn dpkg(root: &Path, arguments: &[&str]) {
    let mut dpkg = Command::new("dpkg");
    // The folder contains no C library, and a user's path contains none of the administrator's
    // programs.
    dpkg.arg("--root").arg(root).arg("--force-depends").args(arguments);
    dpkg.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    ok(&dpkg.output().expect("dpkg"));
}

#[test]
#[ignore = "long tier"]
fn dpkg_installs_and_removes_the_package() {
    let place = Place::new();
    if !is_root(&place.path) {
        return skipped("dpkg installs for root only");
    }
    let package = make(&place);
    let root = place.path.join("root");
    let state = root.join("var/lib/dpkg");
    for folder in ["info", "updates"] {
        fs::create_dir_all(state.join(folder)).expect("target/ is writable");
    }
    fs::write(state.join("status"), "").expect("target/ is writable");
    dpkg(&root, &["--install", &package.display().to_string()]);
    works(&root.join("usr"), "lib/cachealloc");
    assert!(root.join("usr/share/zsh/vendor-completions/_cachealloc").is_file());
    dpkg(&root, &["--purge", "cachealloc"]);
    assert!(!root.join("usr").exists());
}

fn is_root(own: &Path) -> bool {
    fs::metadata(own).expect("a folder of ours").uid() == 0
}

#[test]
#[ignore = "long tier"]
fn package_has_the_form_of_debian_packages() {
    let place = Place::new();
    let package = make(&place);
    let field = |name: &str| {
        let output = Command::new("dpkg-deb").arg("--field").arg(&package).arg(name).output();
        ok(&output.expect("dpkg-deb")).trim_end().to_string()
    };
    assert_eq!(field("Version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(field("Depends"), "libc6 (>= 2.17), libgcc-s1");
    let maintainer = field("Maintainer");
    let host = maintainer.rsplit('@').next().expect("an address");
    assert!(host.contains('.') && host.ends_with('>'), "{maintainer}: no address");
    let description = field("Description");
    assert!(description.lines().all(|line| line.len() <= 80), "{description}");
    let root = place.path.join("root");
    let extract = Command::new("dpkg-deb").arg("-x").arg(&package).arg(&root).status();
    assert!(extract.expect("dpkg-deb").success());

    // All files belong to root, and only root may change them.
    for line in tool("dpkg-deb", &["--contents"], &package).lines() {
        let mut words = line.split_whitespace();
        let (mode, owner) = (words.next().expect("a mode"), words.next().expect("an owner"));
        let modes = ["drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--"];
        assert!(modes.contains(&mode) && owner == "root/root", "{line}");
        assert_eq!(mode == "-rwxr-xr-x", line.ends_with("/usr/bin/cachealloc"), "{line}");
        let manual_page = line.contains("/share/man/") && mode.starts_with('-');
        assert!(!manual_page || line.ends_with(".gz"), "{line}");
    }
    // The library is not where the loader looks: that would require a number in its name, and a
    // trigger for ldconfig.
    let in_lib = fs::read_dir(root.join("usr/lib")).expect("the folder").flatten();
    assert!(in_lib.into_iter().all(|entry| entry.path().is_dir()));
    for file in ["usr/bin/cachealloc", "usr/lib/cachealloc/libcachealloc.so"] {
        let sections = tool("readelf", &["-S", "--wide"], &root.join(file));
        assert!(!sections.contains(".symtab") && !sections.contains(".comment"), "{file}");
    }
}

/// Lintian reports neither errors nor warnings, and the package contains no overrides.
#[test]
#[ignore = "long tier"]
fn lintian_finds_nothing() {
    let place = Place::new();
    let package = ok(&packing(&place, "deb.sh", &[]).output().expect("the script is there"));
    let mut lintian = Command::new("lintian");
    // Ignores the settings of the user who runs the tests, which is root under CI.
    lintian.args(["--no-cfg", "--allow-root", "--show-overrides", "--fail-on", "error,warning"]);
    let output = match lintian.arg(package.trim_end()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return skipped("no lintian here (apt-get install lintian)");
        }
        output => output.expect("lintian"),
    };
    assert_eq!(ok(&output), "", "{output:?}");
}

#[test]
#[ignore = "long tier"]
fn its_documents_are_in_debians_form() {
    let place = Place::new();
    let package = make(&place);
    let root = place.path.join("root");
    let extract = Command::new("dpkg-deb").arg("-x").arg(&package).arg(&root).status();
    assert!(extract.expect("dpkg-deb").success());
    let documents = root.join("usr/share/doc/cachealloc");
    let copyright = fs::read_to_string(documents.join("copyright")).expect("the licences");
    assert!(copyright.contains("/usr/share/common-licenses/Apache-2.0"));
    assert!(copyright.contains("Redistributions in binary form must reproduce"));
    links_lead_somewhere_in(&documents);
    // The whole text of the licence is already installed there.
    assert!(!copyright.contains("Grant of Patent License"));

    let changelog = tool("gunzip", &["--stdout"], &documents.join("changelog.gz"));
    let lines: Vec<_> = changelog.lines().collect();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(lines[0], format!("cachealloc ({version}) unstable; urgency=medium"));
    assert!(lines[1].is_empty() && lines[2].starts_with("  * "), "{changelog}");
    let (changes, last) = lines[2..].split_at(lines.len() - 4);
    let begins = |line: &&str| line.starts_with("  * ") || line.starts_with("    ");
    assert!(changes.iter().all(begins), "{changelog}");
    assert!(changes.iter().all(|line| line.len() <= 80), "{changelog}");
    assert!(last[0].is_empty() && last[1].starts_with(" -- "), "{changelog}");
    assert!(last[1].ends_with(" +0000") && last[1].contains(">  "), "{changelog}");
}
