//! Plugins that bind their own way, so that their calls reach the driver past us: their work is not
//! counted, and no free may take the marks' word for it.

use std::path::PathBuf;

use cachealloc_tests::{Ran, Run, compile_library, driver_folder};

use crate::hazards::problems;

const MODES: [&str; 3] = ["ordered", "strict", "relaxed"];

fn plugin(name: &str) -> PathBuf {
    compile_library("deep_plugin.c", &format!("plugins/{name}"), &["-ldl"])
}

fn plugins() -> [PathBuf; 2] {
    let driver = driver_folder().join("libcuda.so.1").display().to_string();
    let flags = ["-DLINKED", "-Wl,--no-as-needed", driver.as_str(), "-ldl"];
    let linked = compile_library("deep_plugin.c", "plugins/libdeep_linked.so", &flags);
    [plugin("libdeep.so"), linked]
}

fn way(name: &str, how: &str, plugin: PathBuf) -> Run {
    Run::c("deep.c").arg(name).arg(how).arg(plugin)
}

/// However such a plugin is opened, whenever, and however it finds the driver.
#[test]
fn a_block_that_the_plugin_fills_is_used_again_behind_that() {
    for plugin in plugins() {
        for how in ["deep", "base", "early"] {
            let run = way("used_again", how, plugin.clone());
            assert_eq!(problems(&run.clone().native().output().ok()), Vec::<&str>::new());
            for mode in MODES {
                let ran = run.clone().conf(&format!("free_mode:{mode}")).output().ok();
                assert_eq!(problems(&ran), Vec::<&str>::new(), "{how}, {mode}: {ran:#?}");
            }
        }
    }
}

#[test]
fn what_the_plugin_copies_is_there_after_a_free() {
    for how in ["deep", "base", "early"] {
        for mode in ["ordered", "strict"] {
            let run = way("looked_at", how, plugin("libdeep.so"));
            let ran = run.conf(&format!("free_mode:{mode}")).output().ok();
            assert_eq!(ran.stdout, "77777\ndone\n", "{how}, {mode}");
        }
    }
}

/// The tests above can fail: what nobody notices, races. A caller that asks the C library itself for
/// `dlopen` is such a one; then the option helps.
#[test]
fn a_plugin_that_is_opened_past_us_too_needs_the_option() {
    for mode in ["ordered", "strict", "relaxed"] {
        let run = way("used_again", "past", plugin("libdeep.so"));
        let ran = run.clone().conf(&format!("free_mode:{mode}")).output().ok();
        assert!(ran.report.races() > 0, "{mode}: {ran:#?}");
        let ran = run.conf(&format!("free_mode:{mode},skip_barriers:false")).output().ok();
        assert_eq!(problems(&ran), Vec::<&str>::new(), "{mode}: {ran:#?}");
    }
}

/// Said once, to those who want to know why frees wait; by the name of the first.
#[test]
fn it_is_said_once() {
    for how in ["deep", "base", "early"] {
        let run = way("used_again", how, plugin("libdeep.so"));
        let ran = run.clone().conf("log:info").output().ok();
        let said = ran.said();
        let about: Vec<_> = said.iter().filter(|line| line.contains("RTLD_DEEPBIND")).collect();
        assert_eq!(about.len(), 1, "{how}: {said:?}");
        assert!(about[0].contains("plugins/libdeep.so is opened"), "{how}: {about:?}");
        assert_eq!(run.output().ok().stderr, "", "{how}");
    }
}

/// Nothing comes of it without CUDA, of an ordinary plugin, of one that is there already, of the
/// program itself, of those that many programs open so and that submit nothing, and of a namespace.
#[test]
fn it_is_not_said_of_others() {
    let ways = ["ordinarily", "again", "itself", "apart"];
    let mut others = ways.map(|how| way("none", how, plugin("libdeep.so"))).to_vec();
    others.push(way("without_cuda", "deep", plugin("libdeep.so")).no_driver());
    others.push(way("none", "deep", plugin("libtbbbind_2_5.so.3")));
    others.push(way("none", "early", driver_folder().join("libcuda.so.1")));
    for run in others {
        let ran = run.conf("log:info").output().ok();
        assert!(!ran.stderr.contains("RTLD_DEEPBIND"), "{ran:#?}");
    }
}

/// A segment that is freed past us is the driver's again, and it gives it to the next who asks. No
/// byte is handed out twice: caching ends. Arenas cannot be freed so.
#[test]
fn a_segment_that_the_plugin_frees_is_noticed() {
    let run = way("given_back", "deep", plugin("libdeep.so"));
    let native = run.clone().native().output().ok();
    for mode in MODES {
        let ran = run.clone().conf(&format!("free_mode:{mode}")).output().ok();
        assert_eq!(ran.stdout, native.stdout);
        assert_eq!(problems(&ran), Vec::<&str>::new(), "{mode}: {ran:#?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:#?}");
        assert!(ran.stderr.contains("freed past the library; caching is off"), "{ran:#?}");
        let ran = run.clone().conf(&format!("free_mode:{mode},expandable_segments:true"));
        let ran = ran.output().ok();
        assert_eq!(ran.stdout, "freed by the plugin: 1\ndone\n");
        assert_eq!((problems(&ran), ran.stderr.as_str()), (Vec::new(), ""), "{mode}: {ran:#?}");
    }
}

/// A plugin in a namespace of its own has a driver of its own, as natively: neither is in the other's way.
#[test]
fn a_namespace_apart_has_a_driver_of_its_own() {
    for plugin in plugins() {
        let run = way("apart", "apart", plugin);
        let native = run.clone().native().output().ok();
        for mode in MODES {
            let ran = run.clone().conf(&format!("free_mode:{mode}")).output().ok();
            assert_eq!(problems(&ran), Vec::<&str>::new(), "{mode}: {ran:#?}");
            let calls =
                |ran: &Ran| ["cuInit", "cuMemsetD8Async"].map(|name| ran.report.calls(name));
            assert_eq!(calls(&native), calls(&ran), "{mode}: {ran:#?}");
            let served = ran.report.calls("cuMemAlloc_v2") < native.report.calls("cuMemAlloc_v2");
            assert!(served, "{mode}: {ran:#?}");
        }
    }
}
