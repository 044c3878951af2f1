"""A server of NVIDIA's multi-process service for one suite, with separate folders."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Dict, Optional, Type

from gpu_runner.process import run
from gpu_runner.watched import Steps

CONTROL = "nvidia-cuda-mps-control"


class Server:
    """Runs while the block runs. `works` is whether a client without the library runs with it."""

    def __init__(self, steps: Steps, client: Path) -> None:
        self.steps = steps
        self.client = client
        self.works = False
        self.variables: Dict[str, str] = {}
        self._folder: Optional[Path] = None

    def __enter__(self) -> "Server":
        report = self.steps.report
        if not shutil.which(CONTROL):
            report.skipped("mps", f"no {CONTROL}")
            return self
        # The paths of its sockets must be short.
        self._folder = Path(tempfile.mkdtemp(prefix="mps-", dir="/tmp"))
        for name, variable in (("pipe", "CUDA_MPS_PIPE_DIRECTORY"), ("log", "CUDA_MPS_LOG_DIRECTORY")):
            (self._folder / name).mkdir()
            self.variables[variable] = str(self._folder / name)
        env = self.steps.context.environment(**self.variables)
        daemon = run([CONTROL, "-d"], env=env, seconds=20, merge=True)
        first = run([self.client, "clean"], env=env, seconds=60, merge=True)
        if daemon.code != 0:
            report.skipped("mps", f"the daemon does not start: {daemon.tail(1)}")
        elif first.code != 0:
            report.skipped("mps", f"a native client does not run: {first.tail(1)}")
        else:
            self.works = True
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if not self._folder:
            return
        env = self.steps.context.environment(**self.variables)
        try:
            subprocess.run([CONTROL], input=b"quit\n", env=env, timeout=20, check=False, stdout=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            pass
        # It was started here, with separate folders: processes that remain are ended by their IDs.
        for file in (self._folder / "pipe").glob("*.pid"):
            try:
                os.kill(int(file.read_text()), signal.SIGTERM)
            except (OSError, ValueError):
                pass
        for file in (self._folder / "log").glob("*.log"):
            shutil.copy(file, self.steps.context.out)
        shutil.rmtree(self._folder, ignore_errors=True)
