//! The wheel: installed in a fresh virtual environment, it contains the command, the library and
//! the Python package.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use cachealloc_tests::{Run, compile_library, lacks, root};

use super::{ok, script};
use crate::record::snapshots::Place;

/// Runs a Python program that no setting of this machine affects.
fn isolated(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    let set = env::vars_os().map(|(name, _)| name);
    let ours = |name: &std::ffi::OsString| {
        ["PIP_", "PYTHON"].iter().any(|start| name.to_string_lossy().starts_with(start))
    };
    set.filter(ours).for_each(|name| _ = command.env_remove(name));
    command.env("PIP_CONFIG_FILE", "/dev/null");
    command
}

fn pip(environment: &Path, arguments: &[&str]) -> String {
    let mut pip = isolated(environment.join("bin/python"));
    pip.args(["-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "-q"]).args(arguments);
    ok(&pip.output().expect("pip is in the environment"))
}

fn make(place: &Place) -> PathBuf {
    PathBuf::from(ok(&script(place, "wheel.py", &[])).trim_end())
}

/// Python's own zip module reads the wheel, and checks it against the format.
#[test]
fn the_wheel_is_a_wheel() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let wheel = make(&place);
    let name = wheel.file_name().expect("a name").to_string_lossy().into_owned();
    let platform = format!("manylinux2014_{}", env::consts::ARCH);
    assert_eq!(name, format!("cachealloc-{}-py3-none-{platform}.whl", env!("CARGO_PKG_VERSION")));
    let judge = root().join("tests/it/package/wheel.py");
    ok(&isolated("python3").arg(judge).arg(&wheel).output().expect("python3"));
    // A build a moment later and in another place gives the same bytes.
    let again = Place::new();
    assert!(fs::read(&wheel).unwrap() == fs::read(make(&again)).unwrap(), "two builds differ");
    let left = fs::read_dir(place.path.join("dist")).expect("the folder").count();
    assert_eq!(left, 1, "only the wheel is left behind");
}

/// The package's syntax and annotations are valid in the oldest Python that the wheel names.
#[test]
fn the_package_needs_no_newer_python() {
    if lacks("python3") {
        return;
    }
    let code = "import ast, pathlib, sys\n\
        for path in pathlib.Path(sys.argv[1]).glob('*.py'):\n    \
        ast.parse(path.read_text(), feature_version=(3, 8))\n";
    let folder = root().join("src/wheel/cachealloc");
    ok(&isolated("python3").args(["-c", code]).arg(folder).output().expect("python3"));
}

/// The module reports the version of its library.
#[test]
fn the_package_has_the_version() {
    let init = fs::read_to_string(root().join("src/wheel/cachealloc/__init__.py")).expect("it");
    let wanted = concat!("\n__version__ = \"", env!("CARGO_PKG_VERSION"), "\"\n");
    assert!(init.contains(wanted), "{wanted}");
}

/// All checks share one environment, which takes seconds to make.
#[test]
#[ignore = "long tier"]
fn pip_installs_and_removes_the_wheel() {
    let place = Place::new();
    let wheel = make(&place).display().to_string();
    let environment = place.path.join("environment");
    let mut python = isolated("python3");
    python.args(["-m", "venv"]).arg(&environment);
    ok(&python.output().expect("python3 and python3-venv are installed: see .ci/run"));
    pip(&environment, &["install", "--no-index", "--no-deps", &wheel]);
    the_command_finds_its_library(&environment);
    every_function_works(&environment);
    the_page_is_true(&environment);
    every_function_says_what_is_missing(&environment);
    told_the_folder_it_works_too(&environment, &wheel, &place.path.join("target"));
    let installed = ["bin/cachealloc", "bin/python"].map(|file| environment.join(file));
    assert!(installed.iter().all(|file| file.exists()));
    pip(&environment, &["uninstall", "-y", "cachealloc"]);
    assert_eq!(installed.map(|file| file.exists()), [false, true]);
}

fn the_command_finds_its_library(environment: &Path) {
    let run = Run::program(environment.join("bin/cachealloc")).native();
    let version = run.clone().arg("--version").output().ok();
    assert_eq!(version.stdout, concat!("cachealloc ", env!("CARGO_PKG_VERSION"), "\n"));
    let by_module = python(environment).args("-m cachealloc --version").output().ok();
    assert_eq!(by_module.stdout, version.stdout);
    let failed = python(environment).args("-m cachealloc stats 0").output();
    assert!(failed.code == Some(2) && failed.stdout.is_empty(), "{failed:?}");
    let demo = crate::tree::samples::built("01-loop");
    let ran = run.args("run --stats-on-exit stderr --").arg(&demo).arg("20").output().ok();
    let native = Run::program(&demo).arg("20").native().output().ok();
    assert_eq!(ran.stdout, native.stdout);
    assert!(ran.stderr.contains("allocations served"), "{}", ran.stderr);
    let [ours, natively] = [&ran, &native].map(|ran| ran.report.calls("cuMemAlloc_v2"));
    assert!(ours < natively, "{ours} driver calls, and {natively} without the library");
}

fn python(environment: &Path) -> Run {
    Run::program(environment.join("bin/python")).native().arg("-B")
}

fn module(environment: &Path, how: &str) -> Run {
    python(environment).arg(root().join("tests/it/package/module.py")).arg(how)
}

/// Returns the path of the library according to the package.
fn library(environment: &Path) -> PathBuf {
    let code = "import cachealloc; print(cachealloc.library())";
    python(environment).arg("-c").arg(code).output().ok().stdout.trim_end().into()
}

fn every_function_works(environment: &Path) {
    let place = Place::new();
    let run = module(environment, "loaded").preload(&[library(environment)]);
    assert_eq!(place.run(&run.conf("snapshot:by-option-%n.pickle")).ok().stdout, "fine\n");
}

/// The examples of docs/python.md run unchanged, and so does the kernel of a notebook.
fn the_page_is_true(environment: &Path) {
    let page = fs::read_to_string(root().join("docs/python.md")).expect("the page");
    let blocks = |language: &str| {
        let begin = format!("```{language}\n");
        let blocks = page.split(&begin).skip(1);
        blocks.map(|block| block.split("```").next().expect("an end")).collect::<String>()
    };
    let place = Place::new();
    fs::write(place.path.join("ipykernel_launcher.py"), KERNEL).expect("target/ is writable");
    let code = format!("{STEP}{}", blocks("python"));
    let ran = place.run(&python(environment).preload(&[library(environment)]).arg("-c").arg(code));
    let said = ran.ok().stdout;
    assert!(said.ends_with("\n1000\n") && place.path.join("step.pickle").is_file(), "{said}");

    fs::write(place.path.join("kernel.json"), blocks("json")).expect("target/ is writable");
    let path = format!("{}:/usr/bin:/bin", environment.join("bin").display());
    let start = "import json, os\n\
        argv = json.load(open('kernel.json'))['argv']\n\
        os.execvp(argv[0], [word.format(connection_file='connection') for word in argv])\n";
    let ran = place.run(&python(environment).env("PATH", path).arg("-c").arg(start)).ok();
    assert_eq!(ran.stdout, "['-f', 'connection'] True state\n");
}

/// A replacement for ipykernel.
const KERNEL: &str = "\
import sys, cachealloc
print(sys.argv[1:], cachealloc.is_loaded(), cachealloc.stats()['recording']['record'])
";

/// Definitions that the examples call.
const STEP: &str = "\
import ctypes
driver = ctypes.CDLL('libcuda.so.1')
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
def step():
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1000)) == 0
    assert driver.cuMemFree_v2(address) == 0
";

fn every_function_says_what_is_missing(environment: &Path) {
    let off = module(environment, "off").preload(&[library(environment)]).env("CACHEALLOC", "0");
    let past = compile_library("old_version.c", "old_version.so", &[]);
    let old = module(environment, "old").preload(&[past]);
    for run in [off, old, module(environment, "absent")] {
        assert_eq!(Place::new().run(&run).ok().stdout, "fine\n");
    }
}

fn told_the_folder_it_works_too(environment: &Path, wheel: &str, folder: &Path) {
    let target = folder.display().to_string();
    pip(environment, &["install", "--no-index", "--no-deps", "--target", &target, wheel]);
    let run = Run::program(folder.join("bin/cachealloc")).native().args("run -- sh -c");
    let ran = run.arg("echo $LD_PRELOAD").output().ok();
    let library = fs::canonicalize(folder.join("cachealloc/libcachealloc.so")).expect("there");
    assert_eq!(ran.stdout, format!("{}\n", library.display()));
}
