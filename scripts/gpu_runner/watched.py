"""Steps of the suite `tools`: a command under a tool, whose output is compared without and with the library."""

from __future__ import annotations

import difflib
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Sequence

from gpu_runner.context import UNDER_LIBRARY, Context
from gpu_runner.process import TIMED_OUT, Ran, run
from gpu_runner.report import Report

# Drops differences between two runs without the library: addresses, process IDs, times, and the library's messages.
DROPPED = re.compile(r"^(cachealloc|time:)|^==(PROF|WARNING)== *$")
MASKS = [
    (re.compile(r"0x[0-9a-fA-F]+"), "ADDRESS"),
    (re.compile(r"==[0-9]+=="), "==PID=="),
    (re.compile(r"(process|Process|pid|PID|LWP|Thread) [0-9]+"), r"\1 N"),
    (re.compile(r"[0-9]+(\.[0-9]+)? (s|ms|us)\b"), r"N \2"),
]


@dataclass(frozen=True)
class Step:
    name: str
    command: Sequence[str]
    seconds: float
    # Pattern in the output without the library that shows that the tool does its work.
    must: str = "."
    # The lines that are compared.
    keep: str = "."
    # Pattern of the reason in the output of a tool that cannot work here.
    cannot: str = "no such text"
    variables: Mapping[str, str] = field(default_factory=dict)
    # Variable by which the library is preloaded.
    preload: str = "LD_PRELOAD"


def mask(text: str) -> List[str]:
    lines = [line for line in text.splitlines() if not DROPPED.search(line)]
    for pattern, word in MASKS:
        lines = [pattern.sub(word, line) for line in lines]
    return lines


def first(pattern: str, text: str) -> str:
    return next((line for line in text.splitlines() if re.search(pattern, line)), "")


class Steps:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.report = Report(context.out)
        self._settings = context.settings("free_mode:ordered")

    def compare(self, step: Step) -> None:
        """Runs a step twice, and compares the exit codes and the lines that count."""
        if not self.context.wanted(step.name):
            return
        if self.context.is_late():
            self.report.failed(step.name, "no time left to run it")
            return
        native = self._run(step, {})
        reason = first(step.cannot, native.text)
        if reason:
            self.report.skipped(step.name, reason)
            return
        if native.code in TIMED_OUT or not first(step.must, native.text):
            self.report.skipped(
                step.name, f"without the library it does not do its work (exit {native.code}): {native.tail(1)[:120]}"
            )
            return
        ours = self._run(step, {step.preload: str(self.context.library), UNDER_LIBRARY: "1"})
        kept = [[line for line in mask(ran.text) if re.search(step.keep, line)] for ran in (native, ours)]
        if native.code != ours.code:
            self.report.failed(step.name, f"exit {native.code} without the library, {ours.code} under it")
        elif kept[0] != kept[1]:
            lines = list(difflib.unified_diff(kept[0], kept[1], "native", "ours", lineterm=""))
            (self.context.out / f"{step.name}.diff").write_text("\n".join(lines))
            self.report.failed(step.name, next(line for line in lines[2:] if line[0] in "+-")[:140])
        else:
            found = first(step.must, native.text).lstrip("= ")[:90]
            self.report.ok(step.name, f"exit {native.code}, {len(kept[0])} lines; {found}")

    def _run(self, step: Step, library: Mapping[str, str]) -> Ran:
        env = self.context.environment(**{"CACHEALLOC_CONF": self._settings, **step.variables, **library})
        ran = run(step.command, env=env, seconds=step.seconds, cwd=self.context.out, merge=True)
        side = "ours" if library else "native"
        (self.context.out / f"{step.name}.{side}").write_bytes(ran.stdout)
        return ran

    def two_clients(self, name: str, command: Sequence[str], seconds: float, variables: Mapping[str, str]) -> None:
        """Runs a program twice at once: without the library, then with it in both, then in one of them."""
        if not self.context.wanted(name):
            return
        environments = {
            "native": self.context.environment(**variables),
            "ours": self.context.under_library(self._settings, **variables),
        }
        said: Dict[str, List[str]] = {}
        for kinds in (("native", "native"), ("ours", "ours"), ("ours", "native")):
            with ThreadPoolExecutor(2) as pool:
                clients = [pool.submit(run, command, seconds=seconds, env=environments[kind]) for kind in kinds]
            for side, client in enumerate(clients, 1):
                ran = client.result()
                said[f"{'-'.join(kinds)}.{side}"] = mask(ran.text) + [f"exit {ran.code}"]
        wrong = [key for key, lines in said.items() if lines != said["native-native.1"]]
        for key, lines in said.items():
            (self.context.out / f"{name}.{key}").write_text("\n".join(lines))
        if not wrong:
            self.report.ok(name, " ".join(said["ours-ours.1"][-2:]))
        elif "native-native.2" in wrong:
            self.report.skipped(name, f"two native clients differ: {' '.join(said['native-native.2'][-2:])}")
        else:
            self.report.failed(name, f"{' '.join(wrong)} differ from native-native.1")
