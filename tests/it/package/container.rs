//! The container recipe: the files that its instructions copy exist, and work where they are put.
//!
//! No image builder is needed: the instructions in the recipe are carried out on folders, as
//! builders document them. Any other instruction fails.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cachealloc_tests::root;

use super::{ok, script, works};
use crate::record::snapshots::Place;

/// The stages of a Dockerfile by name, each a folder, and the environment that the last one sets.
struct Built {
    stages: BTreeMap<String, PathBuf>,
    last: PathBuf,
    environment: BTreeMap<String, String>,
}

impl Built {
    /// Builds the stages. `others` are images from which the file copies.
    fn new(text: &str, context: &Path, place: &Path, others: &[(&str, &Path)]) -> Built {
        let stages = others.iter().map(|(name, path)| (name.to_string(), path.to_path_buf()));
        let mut built = Built {
            stages: stages.collect(),
            last: place.join("unnamed"),
            environment: BTreeMap::new(),
        };
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        for (number, line) in lines.enumerate() {
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["FROM", "scratch", ref name @ ..] => {
                    built.last = place.join(format!("stage-{number}"));
                    fs::create_dir_all(&built.last).expect("target/ is writable");
                    if let ["AS", name] = name {
                        built.stages.insert(name.to_string(), built.last.clone());
                    }
                }
                ["ADD", from, to] => {
                    let to = built.inside(to);
                    sh("for f in $0; do tar -xzf \"$f\" -C \"$1\"; done", &context.join(from), &to);
                }
                ["COPY", from, source, to] => {
                    let stage = from.strip_prefix("--from=").expect("from another stage");
                    let from = built.stages[stage].join(source.trim_start_matches('/'));
                    built.copy(&from, to);
                }
                ["ENV", setting] => {
                    let (name, value) = setting.split_once('=').expect("ENV name=value");
                    built.environment.insert(name.into(), value.into());
                }
                ["ENTRYPOINT" | "CMD", ..] => {}
                _ => panic!("{line}: carry this out here too"),
            }
        }
        built
    }

    fn inside(&self, path: &str) -> PathBuf {
        let path = self.last.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("a folder")).expect("target/ is writable");
        path
    }

    /// Copies the contents of a folder, or a file.
    fn copy(&self, from: &Path, to: &str) {
        let to = self.inside(to);
        let copy = "set -e; for f in $0; do if [ -d \"$f\" ]; then mkdir -p \"$1\"; \
            cp -R \"$f/.\" \"$1\"; else cp \"$f\" \"$1\"; fi; done";
        sh(copy, from, &to);
    }
}

/// Runs a script. The shell expands `pattern`; no folder of the tests has a space in its name.
fn sh(script: &str, pattern: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("a folder")).expect("target/ is writable");
    ok(&Command::new("sh").args(["-c", script]).arg(pattern).arg(to).output().expect("a shell"));
}

#[test]
#[ignore = "long tier"]
fn files_copied_by_the_recipe_work_in_place() {
    let place = Place::new();
    ok(&script(&place, "dist.sh", &[]));
    let recipe = fs::read_to_string(root().join("samples/container/Dockerfile")).expect("there");
    let image = Built::new(&recipe, &place.path.join("dist"), &place.path, &[]).last;
    works(&image.join("opt/cachealloc"), "lib");
    assert_eq!(fs::read_dir(&image).expect("the image").count(), 1, "the image has nothing else");

    let page = fs::read_to_string(root().join("docs/containers.md")).expect("the page");
    let blocks: Vec<_> = page.split("```dockerfile\n").skip(1).collect();
    let blocks = blocks.iter().map(|block| block.split("```").next().expect("an end"));
    let uses = blocks.enumerate().map(|(number, block)| {
        let own = place.path.join(format!("use-{number}"));
        Built::new(&format!("FROM scratch\n{block}"), &own, &own, &[("cachealloc", &image)])
    });
    let [by_command, by_variable] = uses.collect::<Vec<_>>().try_into().ok().expect("two uses");
    works(&by_command.last.join("opt/cachealloc"), "lib");
    let path = &by_command.environment["PATH"];
    let folder = path.split(':').next().expect("the first").trim_start_matches('/');
    assert!(by_command.last.join(folder).join("cachealloc").is_file(), "{path}");
    let library = by_variable.environment["LD_PRELOAD"].trim_start_matches('/');
    assert!(by_variable.last.join(library).is_file(), "{library}");
}
