"""NVIDIA's samples, unmodified, output compared: of checkouts named by --samples and --library-samples.

Needs nvcc. Packed checkouts are found by themselves.
"""

from __future__ import annotations

import argparse
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional

from gpu_runner import machine
from gpu_runner.compare import Case, Comparison
from gpu_runner.context import CannotRun, Context
from gpu_runner.cuda import Compiler, Program, link
from gpu_runner.lists import Options
from gpu_runner.paths import PACKED, TESTS, rows


class Checkout(NamedTuple):
    repository: str
    # Its list in tests/gpu.
    list: str
    # Folder of the checkout to which the list's folders are relative.
    below: str
    # First word of the case names.
    kind: str
    option: str

    @property
    def archive(self) -> str:
        return f"{self.list}.tar.xz"

    def named(self, options: argparse.Namespace) -> Optional[Path]:
        folder: Optional[Path] = getattr(options, self.kind)
        return folder.resolve() if folder else None

    def rows(self) -> Iterator[List[str]]:
        for line in rows(TESTS / f"{self.list}.txt"):
            yield [column.strip() for column in line.split("|")]

    def folders(self, root: Path) -> List[str]:
        """Returns the folders of a checkout that the list and its flags name."""
        found = {"Common"}
        for folder, _, flags, *_ in self.rows():
            found.add(os.path.normpath(f"{self.below}/{folder}"))
            for flag in flags.split():
                if flag.startswith("-I.."):
                    found.add(os.path.normpath(f"{self.below}/{folder}/{flag[2:]}"))
        return sorted(folder for folder in found if (root / folder).is_dir())


CHECKOUTS = (
    Checkout("cuda-samples", "cuda-samples", "Samples", "sample", "--samples"),
    Checkout("CUDALibrarySamples", "library-samples", ".", "library", "--library-samples"),
)


def add_options(group: "argparse._ArgumentGroup") -> None:
    for checkout in CHECKOUTS:
        text = f"a checkout of NVIDIA's {checkout.repository}; default: the packed one, if any"
        group.add_argument(checkout.option, dest=checkout.kind, type=Path, metavar="DIR", help=text)


def place(checkout: Checkout, context: Context) -> Optional[Path]:
    """Returns the folder of a checkout: the one that is named, or the packed one, unpacked."""
    named, packed = checkout.named(context.options), PACKED / checkout.archive
    if named or not packed.exists():
        return named
    folder = context.build / checkout.list
    if not folder.exists():
        with tarfile.open(packed) as archive:
            archive.extractall(folder)
    return folder


@dataclass(frozen=True)
class Sample:
    """One line of a list: `-` stands for nothing."""

    name: str
    program: str
    folder: Path
    sources: List[str]
    flags: List[str]
    arguments: List[str]
    options: Options


def run_suite(context: Context) -> bool:
    context.needs_gpu()
    samples = []
    for checkout in CHECKOUTS:
        folder = place(checkout, context)
        if folder:
            samples += [it for it in samples_of(checkout, folder) if context.wanted(it.name)]
    if not samples:
        raise CannotRun("no checkout is named (--samples, --library-samples), or no case matches --only")
    compiler = Compiler(context.build)
    builds = [build for sample in samples for build in programs_of(context, sample)]
    compiler.compile_all(builds)
    cases, left_out = [], []
    for sample in samples:
        folder = folder_of(context, sample)
        if (folder / sample.program).exists():
            command = [f"./{sample.program}", *sample.arguments]
            cases.append(Case(sample.name, command, sample.options, cwd=folder))
        else:
            left_out.append(f"{sample.name}: not built")
    return Comparison(context, cases, left_out).run()


def samples_of(checkout: Checkout, root: Path) -> Iterator[Sample]:
    kind = checkout.kind
    for columns in checkout.rows():
        folder = root / checkout.below / columns[0]
        sources, flags, arguments = ([] if column == "-" else column.split() for column in columns[1:4])
        options = Options.parse(columns[4])
        program = folder.name
        if kind == "library":  # a folder may hold several: the last source names the program
            program = Path(sources[-1]).stem
        name = f"{kind}-{program[: -len('_example')] if program.endswith('_example') else program}"
        if folder.is_dir() and machine.device_count() >= options.devices:
            yield Sample(name, program, folder, sources, flags, arguments, options)


def folder_of(context: Context, sample: Sample) -> Path:
    return context.build / sample.name.split("-")[0] / sample.program


def programs_of(context: Context, sample: Sample) -> Iterator[Program]:
    into = folder_of(context, sample)
    into.mkdir(parents=True, exist_ok=True)
    # Files that a program reads at run time: its data folder, matrices, and the kernels that it compiles itself.
    for pattern in ("data", "*.mtx", "*.cu", "*.cuh", "*.h"):
        for file in sample.folder.glob(pattern):
            link(into / file.name, file)
    root = place(CHECKOUTS[0], context)
    includes = [f"-I{root / 'Common'}"] if root and (root / "Common").is_dir() else []
    plain = []
    for source in sample.sources:
        if ">" in source:  # a kernel that the program loads
            source, output = source.split(">")
            yield Program(into / output, sample.folder, ["-O2", f"-{output.rsplit('.', 1)[1]}", *includes, source])
        else:
            plain.append(source)
    yield Program(into / sample.program, sample.folder, ["-O2", *includes, "-I.", *plain, *sample.flags])
