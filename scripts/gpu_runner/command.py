"""The command line: `scripts/gpu list`, `scripts/gpu run`, `scripts/gpu pack`."""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Optional

from gpu_runner import pack, suites
from gpu_runner.context import CannotRun, Context, folder_of_run
from gpu_runner.paths import OUT, built

ALL_WELL, FAILED, COULD_NOT_RUN = 0, 1, 2
MODES = "strict ordered relaxed"
EPILOG = f"""exit code: {ALL_WELL} all is well, {FAILED} something differs or fails, {COULD_NOT_RUN} a suite could not run.
tests/gpu/README.md explains the suites."""


def main() -> int:
    options = parser().parse_args()
    try:
        return int(options.function(options))
    except CannotRun as error:
        print(f"gpu: {error}", file=sys.stderr)
        return COULD_NOT_RUN


def parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    result = argparse.ArgumentParser(
        prog="scripts/gpu", description="Test and measure on a GPU.", epilog=EPILOG, formatter_class=form
    )
    commands = result.add_subparsers(metavar="COMMAND", required=True)
    listed = commands.add_parser("list", help="print the suites")
    listed.set_defaults(function=list_suites)
    run = commands.add_parser("run", help="run suites, one after the other", epilog=EPILOG, formatter_class=form)
    add_run_options(run)
    run.set_defaults(function=run_suites)
    packed = commands.add_parser(
        "pack", help="collect what a GPU machine without cargo needs", description=pack.__doc__, formatter_class=form
    )
    packed.add_argument("folder", type=Path, metavar="DIR")
    add_library(packed)
    suites.load("samples").add_options(packed.add_argument_group("checkouts"))
    packed.set_defaults(function=pack_folder)
    return result


def add_run_options(run: argparse.ArgumentParser) -> None:
    run.add_argument("suites", nargs="+", choices=suites.NAMES, metavar="SUITE", help="see `scripts/gpu list`")
    add_library(run)
    add = run.add_argument
    add("--driver", type=Path, metavar="DIR", help="run on the simulated driver: DIR has it as libcuda.so.1")
    text = "run only cases whose name matches; may be repeated"
    add("--only", action="append", default=[], type=re.compile, metavar="PATTERN", help=text)
    add("--out", type=Path, default=OUT, metavar="DIR", help="a suite writes to DIR/SUITE (default: .out/gpu)")
    text = f'free modes that are compared (default: "{MODES}"); "" runs twice without the library'
    add("--modes", default=MODES, metavar='"M..."', help=text)
    add("--conf", default="", metavar="TEXT", help="more settings, as in CACHEALLOC_CONF")
    add("--jobs", type=int, default=4, metavar="N", help="programs that run at once (default: 4)")
    add("--limit", type=float, metavar="SECONDS", help="start no program after this time, and say what was not run")
    text = "keep what an earlier run to the same folder has compared, and run the rest"
    add("--resume", action="store_true", help=text)
    for name in suites.NAMES:
        suite = suites.load(name)
        if hasattr(suite, "add_options"):
            suite.add_options(run.add_argument_group(f"options of {name}"))


def add_library(command: argparse.ArgumentParser) -> None:
    default = built("libcachealloc.so", "release")
    text = "the library, with the command beside it (default: the packed or the release build)"
    command.add_argument("--lib", type=Path, metavar="PATH", default=default, help=text)


def library(options: argparse.Namespace) -> Path:
    path: Path = options.lib
    if not path.exists():
        raise CannotRun(f"no library at {path}; build it by `make`, or name one by --lib")
    return path.resolve()


def list_suites(options: argparse.Namespace) -> int:
    for name in suites.NAMES:
        print(f"{name:12} {suites.summary(suites.load(name))}")
    return ALL_WELL


def pack_folder(options: argparse.Namespace) -> int:
    pack.pack(options.folder, library(options), options)
    return ALL_WELL


def run_suites(options: argparse.Namespace) -> int:
    until = time.monotonic() + options.limit if options.limit else None
    own, driver = library(options), folder_of_driver(options.driver)
    worst = ALL_WELL
    for name in options.suites:
        if len(options.suites) > 1:
            print(f"== {name}", flush=True)
        try:
            context = Context(
                library=own,
                driver=driver,
                only=options.only,
                modes=options.modes.split(),
                conf=options.conf,
                jobs=options.jobs,
                until=until,
                options=options,
                out=folder_of_run(options.out / name, own, options.resume),
                build=build_folder(options.out),
            )
            good = suites.load(name).run_suite(context)
            worst = max(worst, ALL_WELL if good else FAILED)
        except CannotRun as error:
            print(f"gpu: {name}: {error}", file=sys.stderr)
            worst = COULD_NOT_RUN
    return worst


def folder_of_driver(folder: Optional[Path]) -> Optional[Path]:
    if folder and not (folder / "libcuda.so.1").exists():
        raise CannotRun(f"no libcuda.so.1 in {folder}; scripts/sim-dir.sh prints a folder that has one")
    return folder.resolve() if folder else None


def build_folder(out: Path) -> Path:
    """Returns the folder of built CUDA programs, which the suites share and the next run uses again."""
    folder = (out / "build").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder
