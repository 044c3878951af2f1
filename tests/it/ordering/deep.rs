//! Plugins that bind in their own way, so that their calls bypass the library and their work is not
//! counted. A library that intercepts `dlopen` to see them must export it, and NVIDIA's profilers
//! mistake a library that exports `dlopen` for their own (Nsight Compute 2025.3: its program then
//! ends in a recursion).

use std::path::PathBuf;

use cachealloc_tests::{Ran, Run, compile_library, driver_folder};

use crate::ordering::hazards::problems;

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

/// The library does not notice such a plugin, however and whenever it is opened, and however it
/// finds the driver: it races. The option helps.
#[test]
fn a_block_that_the_plugin_fills_needs_the_option() {
    for plugin in plugins() {
        for how in ["deep", "base", "early", "past"] {
            let run = way("used_again", how, plugin.clone());
            assert_eq!(problems(&run.clone().native().output().ok()), Vec::<&str>::new());
            for mode in MODES {
                let ran = run.clone().conf(&format!("free_mode:{mode}")).output().ok();
                assert!(ran.report.races() > 0, "{how}, {mode}: {ran:#?}");
                let with = format!("free_mode:{mode},skip_barriers:false");
                let ran = run.clone().conf(&with).output().ok();
                assert_eq!(problems(&ran), Vec::<&str>::new(), "{how}, {mode}: {ran:#?}");
            }
        }
    }
}

#[test]
fn plugin_copies_need_both_options() {
    for how in ["deep", "base", "early"] {
        let run = way("looked_at", how, plugin("libdeep.so"));
        let ran = run.conf("free_mode:strict,skip_barriers:false").output().ok();
        assert_eq!(ran.stdout, "77777\ndone\n", "{how}");
    }
}

/// A segment freed by such a plugin is the driver's again, and the driver gives it to the next
/// request. No byte is handed out twice, because caching ends. Arenas cannot be freed this way.
#[test]
fn a_segment_that_the_plugin_frees_is_noticed() {
    let run = way("given_back", "deep", plugin("libdeep.so"));
    let native = run.clone().native().output().ok();
    for mode in MODES {
        let ran = run.clone().conf(&format!("free_mode:{mode}")).output().ok();
        assert_eq!(ran.stdout, native.stdout);
        assert_eq!(problems(&ran), Vec::<&str>::new(), "{mode}: {ran:#?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:#?}");
        assert!(
            ran.stderr.contains("freed without passing the library; caching is off"),
            "{ran:#?}"
        );
        let ran = run.clone().conf(&format!("free_mode:{mode},expandable_segments:true"));
        let ran = ran.output().ok();
        assert_eq!(ran.stdout, "freed by the plugin: 1\ndone\n");
        assert_eq!((problems(&ran), ran.stderr.as_str()), (Vec::new(), ""), "{mode}: {ran:#?}");
    }
}

/// A plugin in a separate namespace has a separate driver, as without the library. Neither disturbs
/// the other.
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
