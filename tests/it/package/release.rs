//! `scripts/package/release.sh`, in a copy of the tree that is a separate repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cachealloc_tests::root;

use super::{ok, packed};
use crate::record::snapshots::Place;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The files that git tracks, in their current state.
struct Copy {
    place: Place,
}

impl Copy {
    fn new() -> Copy {
        let place = Place::new();
        let copy = "mkdir \"$0\" && git ls-files -z --cached --others --exclude-standard |\
            tar --null --ignore-failed-read -cf - -T - | tar -C \"$0\" -xf -";
        let tree = place.path.join("tree");
        let mut sh = Command::new("sh");
        sh.args(["-c", copy]).arg(&tree).current_dir(root());
        ok(&sh.output().expect("a shell"));
        let copy = Copy { place };
        copy.git(&["init", "-q"]);
        copy.commit();
        copy
    }

    fn tree(&self) -> PathBuf {
        self.place.path.join("tree")
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "A tester");
            command.env(format!("GIT_{role}_EMAIL"), "tester@cachealloc.invalid");
        }
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        command.current_dir(self.tree());
        command
    }

    fn git(&self, arguments: &[&str]) -> String {
        let output = self.command(Path::new("git")).args(arguments).output();
        ok(&output.expect("git is installed: see .ci/run"))
    }

    fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "-q", "-m", "As it is"]);
    }

    fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.tree().join(file);
        let text = fs::read_to_string(&path).expect(file);
        assert!(text.contains(from), "{file} has no {from}");
        fs::write(path, text.replacen(from, to, 1)).expect("target/ is writable");
    }

    fn release(&self, arguments: &[&str]) -> Output {
        let mut release = self.command(&self.tree().join("scripts/package/release.sh"));
        release.args(arguments).arg("--built").arg(packed(&self.place));
        release.env("CARGO_TARGET_DIR", &self.place.path).env("DPKG_DEB_COMPRESSOR_TYPE", "none");
        release.output().expect("the script is there")
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str], why: &str) {
        let output = self.release(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{output:?}");
        assert!(!self.place.path.join("dist").exists(), "nothing is built");
    }
}

#[test]
#[ignore = "long tier"]
fn a_release_that_is_not_ready_is_refused() {
    let copy = Copy::new();
    fs::write(copy.tree().join("left.txt"), "").expect("target/ is writable");
    copy.refused(&[], "the tree is not clean:\n?? left.txt");
    fs::remove_file(copy.tree().join("left.txt")).expect("target/ is writable");

    copy.edit("include/cachealloc.h", &format!("\"{VERSION}\""), "\"9.9.9\"");
    copy.commit();
    copy.refused(&[], "include/cachealloc.h has version 9.9.9, and Cargo.toml ");
    copy.edit("include/cachealloc.h", "\"9.9.9\"", &format!("\"{VERSION}\""));

    copy.edit("CHANGELOG.md", &format!("## {VERSION}"), "## 9.9.9");
    copy.commit();
    copy.refused(&[], "CHANGELOG.md begins with 9.9.9");
    copy.edit("CHANGELOG.md", "## 9.9.9", &format!("## {VERSION}"));

    let locked = |version: &str| format!("name = \"cachealloc-core\"\nversion = \"{version}\"");
    copy.edit("Cargo.lock", &locked(VERSION), &locked("9.9.9"));
    copy.commit();
    copy.refused(&[], "Cargo.lock has cachealloc-core 9.9.9");
    copy.edit("Cargo.lock", &locked("9.9.9"), &locked(VERSION));
    copy.commit();

    copy.git(&["tag", &format!("v{VERSION}")]);
    copy.refused(&[], &format!("the tag v{VERSION} exists"));
    copy.git(&["tag", "--delete", &format!("v{VERSION}")]);

    let heading = copy.git(&["grep", "-h", &format!("^## {VERSION}"), "CHANGELOG.md"]);
    let unreleased = format!("## {VERSION} (not released yet)");
    copy.edit("CHANGELOG.md", heading.trim_end(), &unreleased);
    if heading.trim_end() != unreleased {
        copy.commit();
    }
    copy.refused(&["--tag"], "it is not released yet");
}

#[test]
#[ignore = "long tier"]
fn a_release_is_four_files_and_a_tag() {
    let copy = Copy::new();
    let dry = ok(&copy.release(&[]));
    let commit = copy.git(&["rev-parse", "HEAD"]);
    assert!(dry.ends_with(&format!("would be tagged: v{VERSION} is {commit}")), "{dry}");
    assert_eq!(copy.git(&["tag"]), "");
    let dist = copy.place.path.join("dist");
    let entries = fs::read_dir(&dist).expect("the folder").flatten();
    let names: Vec<_> = entries.map(|it| it.file_name().to_string_lossy().into_owned()).collect();
    let ends = [".tar.gz", ".whl", ".deb"];
    let one = |end: &&str| names.iter().find(|name| name.ends_with(*end)).expect(end);
    let packages: Vec<_> = ends.iter().map(one).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    let sums = fs::read_to_string(dist.join("SHA256SUMS")).expect("the checksums");
    assert!(packages.iter().all(|name| sums.contains(&format!("  {name}\n"))), "{sums}");
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--strict", "SHA256SUMS"]).current_dir(&dist);
    ok(&check.output().expect("coreutils"));

    let heading = format!("## {VERSION} (not released yet)");
    if fs::read_to_string(copy.tree().join("CHANGELOG.md")).is_ok_and(|it| it.contains(&heading)) {
        copy.edit("CHANGELOG.md", &heading, &format!("## {VERSION} (today)"));
        copy.commit();
    }
    ok(&copy.release(&["--tag"]));
    assert_eq!(copy.git(&["tag"]), format!("v{VERSION}\n"));
    let again = fs::read_to_string(dist.join("SHA256SUMS")).expect("the checksums");
    assert_eq!(again.lines().count(), 3, "{again}");
}
