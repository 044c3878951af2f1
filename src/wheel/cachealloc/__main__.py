"""``python -m cachealloc run -- ...``: the command that came with this package."""

import os
import shutil
import sys
import sysconfig


def _command() -> str:
    package = os.path.dirname(os.path.abspath(__file__))
    # Where pip puts it; beside the package after ``pip install --target``; wherever it is.
    folders = [sysconfig.get_path("scripts"), os.path.join(os.path.dirname(package), "bin")]
    for folder in folders:
        path = os.path.join(folder, "cachealloc")
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("cachealloc")
    if found is None:
        sys.exit(f"cachealloc: the command is missing in {' and '.join(folders)}: install the wheel again")
    return found


if __name__ == "__main__":
    command = _command()
    os.execv(command, [command, *sys.argv[1:]])
