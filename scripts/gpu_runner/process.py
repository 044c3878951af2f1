"""Runs one program to its end or to its time limit."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Mapping, Optional, Sequence, Union

Words = Sequence[Union[str, "os.PathLike[str]"]]

# Exit codes of timeout(1) at the time limit; the second one if the program ignored SIGTERM.
TIMED_OUT = (124, 137)
GRACE_S = 5


@dataclass(frozen=True)
class Ran:
    """Outcome of a program. The exit code is as in a shell: 128 and more after a signal."""

    code: int
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")

    @property
    def errors(self) -> str:
        return self.stderr.decode(errors="replace")

    def tail(self, count: int) -> str:
        """Returns the last lines of both outputs, the errors last."""
        return "\n".join((self.text + self.errors).splitlines()[-count:])


def run(
    command: Words,
    *,
    seconds: float = 120,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[Path] = None,
    merge: bool = False,
) -> Ran:
    """Runs a program without input. With `merge`, stdout also contains the lines of stderr.

    Output goes to files: a process that outlives the program may keep a pipe open, and the reader would wait for it.
    """
    began = time.monotonic()
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        child = start(command, seconds=seconds, stdout=stdout, stderr=stdout if merge else stderr, env=env, cwd=cwd)
        try:
            code = child.wait()
        finally:
            child.terminate()  # has no effect if it has ended
        spent = time.monotonic() - began
        stdout.seek(0)
        stderr.seek(0)
        return Ran(code if code >= 0 else 128 - code, stdout.read(), stderr.read(), spent)


def start(
    command: Words,
    *,
    seconds: float,
    stdout: IO[bytes],
    stderr: IO[bytes],
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[Path] = None,
) -> "subprocess.Popen[bytes]":
    """Starts a program under timeout(1), which ends it and what it has started, also if this process ends first.

    timeout itself must not run under the library, so env(1) sets LD_PRELOAD.
    """
    variables = dict(os.environ if env is None else env)
    preload = variables.pop("LD_PRELOAD", None)
    words = ["timeout", "-k", str(GRACE_S), str(seconds)]
    words += ["env", f"LD_PRELOAD={preload}"] if preload else []
    words += [os.fspath(word) for word in command]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=variables, cwd=cwd)
