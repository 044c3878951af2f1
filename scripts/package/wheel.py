#!/usr/bin/env python3
"""Makes target/dist/cachealloc-VERSION-py3-none-PLATFORM.whl from the built files: command, library, Python package.

    scripts/package/wheel.py [--built FOLDER]

The wheel of a commit is reproducible, like the other packages. Needs only Python.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts/package"
PACKAGE = ROOT / "src/wheel/cachealloc"
SUMMARY = "caching allocator and memory profiler for CUDA programs"
# The platform tag of pip for a glibc; older versions of pip also know the one of 2014.
PLATFORMS = {"2.17": "manylinux2014"}


def script(name, *arguments):
    return subprocess.check_output([SCRIPTS / name, *arguments], text=True).strip()


def metadata(version):
    readme = (ROOT / "README.md").read_text()
    # The page of the wheel cannot link to files in the tree.
    readme = re.sub(r"!\[[^]]*\]\((?!https?:)[^)]*\)\n*", "", readme)
    readme = re.sub(r"\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", readme)
    return f"""\
Metadata-Version: 2.1
Name: cachealloc
Version: {version}
Summary: {SUMMARY}
Author: The cachealloc authors
License: MIT OR Apache-2.0
Keywords: CUDA,GPU,memory,allocator,profiler
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: License :: OSI Approved :: Apache Software License
Classifier: License :: OSI Approved :: MIT License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: Rust
Classifier: Typing :: Typed
Requires-Python: >=3.8
Description-Content-Type: text/markdown
License-File: LICENSE-MIT
License-File: LICENSE-APACHE
License-File: THIRD-PARTY

{readme}"""


def contents(built, version, tag):
    """Yields the packed files: name, bytes, and whether it is a program."""
    info = f"cachealloc-{version}.dist-info"
    for path in sorted(PACKAGE.iterdir()):
        if path.suffix == ".py" or path.name == "py.typed":
            yield f"cachealloc/{path.name}", path.read_bytes(), False
    yield "cachealloc/libcachealloc.so", (built / "libcachealloc.so").read_bytes(), True
    # The program itself, without a Python wrapper: its children get signals and environment unchanged.
    yield f"cachealloc-{version}.data/scripts/cachealloc", (built / "cachealloc").read_bytes(), True
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        yield f"{info}/licenses/{name}", (ROOT / name).read_bytes(), False
    yield f"{info}/licenses/THIRD-PARTY", (script("third-party.py") + "\n").encode(), False
    wheel = f"Wheel-Version: 1.0\nGenerator: scripts/package/wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    yield f"{info}/WHEEL", wheel.encode(), False
    yield f"{info}/METADATA", metadata(version).encode(), False


def record(name, packed):
    digest = base64.urlsafe_b64encode(hashlib.sha256(packed).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(packed)}\n"


def main():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--built", type=pathlib.Path, default=target / "release")
    built = parser.parse_args().built
    version = script("version.sh")
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit(f"wheel: version {version} is written otherwise in Python (PEP 440)")
    files = [built / "libcachealloc.so", built / "cachealloc"]
    for file in files:
        if not file.exists():
            sys.exit(f"wheel: {file} is missing: run `make` first")
    floor = script("glibc-floor.sh", *files)
    platform = PLATFORMS.get(floor, "manylinux_" + floor.replace(".", "_"))
    tag = f"py3-none-{platform}_{script('machine.sh', files[0])}"
    date = time.gmtime(int(script("date.sh")))[:6]
    (target / "dist").mkdir(parents=True, exist_ok=True)
    wheel = target / "dist" / f"cachealloc-{version}-{tag}.whl"
    records = ""
    # Renamed when complete.
    draft = wheel.with_suffix(".part")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

        def add(name, packed, is_program):
            entry = zipfile.ZipInfo(name, date)
            entry.create_system = 3  # Unix: the modes count
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, packed)

        for name, packed, is_program in contents(built, version, tag):
            add(name, packed, is_program)
            records += record(name, packed)
        name = f"cachealloc-{version}.dist-info/RECORD"
        add(name, f"{records}{name},,\n".encode(), False)
    draft.replace(wheel)
    print(wheel)


main()
