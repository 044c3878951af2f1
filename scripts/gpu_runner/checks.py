"""Programs that check their own results under the library, because the driver has no counterpart to what they test."""

from __future__ import annotations

import re
from typing import Mapping, Optional

from gpu_runner.context import Context
from gpu_runner.process import Words, run
from gpu_runner.report import Report

SECONDS_MAX = 300


class Checks:
    """Runs programs that exit with 0 and print a line of success, which `success` matches."""

    def __init__(self, context: Context, success: str = "(?m)ok$") -> None:
        self.context = context
        self.report = Report(context.out)
        self._success = re.compile(success)

    def check(self, name: str, settings: str, command: Words, variables: Optional[Mapping[str, str]] = None) -> None:
        if not self.context.wanted(name):
            return
        if self.context.is_late():
            self.report.failed(name, "no time left to run it")
            return
        env = self.context.under_library(self.context.settings(settings), **(variables or {}))
        ran = run(command, env=env, seconds=SECONDS_MAX, merge=True)
        if ran.code == 0 and "FAIL" not in ran.text and self._success.search(ran.text):
            self.report.ok(name)
            self.report.indented("\n".join(line for line in ran.text.splitlines() if line.startswith("time:")))
        else:
            self.report.failed(name, f"exit code {ran.code}", ran.text)
