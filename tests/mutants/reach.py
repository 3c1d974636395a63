"""Which file of tests reaches which lines. Each file of tests runs once on the tree as it is, and gcov or a trace says what ran."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

import tree

REACHED = tree.WORK / "reached"
FOLDERS = (
    "base",
    "proto",
    "memory",
    "service",
    "daemon",
    "loader",
    "peer",
    "keeper",
    "follow",
    "exporter",
    "client/lib",
    "client/region",
    "client/ctl",
)
# The kinds of unit programs that have a folder's tests: docs/architecture.md, "Tests".
KINDS = {
    "base": ("proto", "lib"),
    "memory": ("lib",),
    "client/lib": ("lib",),
    "client/region": ("lib",),
    "client/ctl": ("ctl",),
}
JOBS = 4  # tests of a program at a time: they wait most of the time
FILE_SECONDS = 60  # of one file of tests on the tree as it is: one that takes longer catches nothing


@dataclasses.dataclass
class File:
    """A file of tests, with what it reached on the tree as it is."""

    path: str
    program: str  # below build/tests; empty: pytest
    digest: str = ""  # of the sources when it ran
    seconds: float = 0
    tests: list[str] = dataclasses.field(default_factory=list)  # those that passed
    lines: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return pathlib.Path(self.path).stem

    def command(self, tests: list[str], out: pathlib.Path) -> list[str]:
        if not self.program:
            python = tree.ROOT / "build/venv/bin/python"
            return [
                str(python),
                "-m",
                "pytest",
                "-p",
                "no:cacheprovider",
                "-q",
                "-x",
                "--tb=line",
                *tests,
            ]
        chosen = [f"--filter=@({'|'.join(tests)})"] if tests else []
        return [
            f"build/tests/{self.program}",
            "--fail-fast",
            f"-j{JOBS}",
            "--timeout=60",
            f"--tap={out}",
            *chosen,
        ]


def environment(file: File, backend: str = "host") -> dict[str, str]:
    build = f"{tree.TREE}/build"
    given = {
        "GPUWM_BUILD": build,
        "GPUWM_TEST_BACKEND": backend,
        "GCOV_PREFIX": "/tmp/gcov",
        "OMP_NUM_THREADS": "1",
    }
    if backend == "fakecuda":
        given["LD_LIBRARY_PATH"] = f"{build}/fakecuda"
    if not file.program:
        python = f"{tree.TREE}/python"
        given |= {
            "GPUWM_LIBRARY": f"{build}/lib/libgpuwm-client.so",
            "PYTHONPATH": f"{python}:{python}/tests",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
    return given


def unit_files(folder: str) -> list[File]:
    """Those of the folder, by the commands that link them."""
    kinds = KINDS.get(folder, (folder,))
    linked = [line.partition(" -o build/tests/unit/")[2] for line in tree.commands() if " -o build/tests/unit/" in line]
    return [
        File(f"tests/unit/{name}.c", f"unit/{line.split()[0]}")
        for line in linked
        for name in re.findall(r"build/obj/tests/unit/(\w+)\.o", line)
        if name.partition("_")[0] in kinds
    ]


def system_files() -> list[File]:
    return [
        File(f"tests/system/{path.name}", "system/system-tests")
        for path in sorted((tree.TREE / "tests/system").glob("*.c"))
        if re.search(r"^\w*Test\(", path.read_text(), re.MULTILINE)
    ]


def _digest(paths: list[str]) -> str:
    whole = hashlib.sha256()
    for path in sorted(paths):
        file = tree.TREE / path
        whole.update(path.encode() + (file.read_bytes() if file.is_file() else b""))
    return whole.hexdigest()


def measure(file: File, backend: str = "host") -> File:
    """Fills in what the file reaches. What an earlier run found counts while neither the tests nor what they reach have changed."""
    kept = REACHED / f"{file.path.replace('/', '-')}-{backend}.json"
    if kept.is_file():
        had = File(**json.loads(kept.read_text()))
        if had.digest == _digest([had.path, *had.lines]):
            return had
    (_measure_c if file.program else _measure_python)(file, backend)
    file.digest = _digest([file.path, *file.lines])
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(dataclasses.asdict(file)))
    return file


def _measure_c(file: File, backend: str) -> None:
    tap = tree.OUT / "tap"
    command = [word for word in file.command([], tap) if word != "--fail-fast"]
    settings = environment(file, backend) | {
        "GPUWM_TEST_FILE": file.name,
        "GCOV_PREFIX": str(tree.OUT / "gcov"),
    }
    _, _, file.seconds = tree.run(command, settings, FILE_SECONDS)
    file.tests = passed(tap)
    file.lines = _lines_of_c()


def passed(tap: pathlib.Path) -> list[str]:
    text = tap.read_text(errors="replace") if tap.is_file() else ""
    return [f"{m[1]}/{m[2]}" for m in re.finditer(r"^ok - (\S+?)::(\S+)(?!.*# SKIP)", text, re.MULTILINE)]


def _lines_of_c() -> dict[str, list[int]]:
    """What the programs that have ended left in OUT. gcov looks for its notes beside the counts."""
    lines: dict[str, set[int]] = {}
    begin = tree.OUT / "gcov" / str(tree.TREE / "build/obj").lstrip("/")
    counts = [p for folder in FOLDERS for p in begin.glob(f"{folder}/**/*.gcda")]
    for path in counts:
        note = path.with_suffix(".gcno")
        note.symlink_to(tree.TREE / "build/obj" / note.relative_to(begin))
    if not counts:
        return {}
    gcov = subprocess.run(
        ["gcov", "--json-format", "--stdout", *map(str, counts)],
        cwd=tree.TREE,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    for one in gcov.stdout.splitlines():
        for source in json.loads(one)["files"] if one.startswith("{") else []:
            lines.setdefault(source["file"], set()).update(line["line_number"] for line in source["lines"] if line["count"])
    return {
        path: sorted(numbers) for path, numbers in lines.items() if numbers and path.endswith(".c") and path.startswith(FOLDERS)
    }


def _measure_python(file: File, backend: str) -> None:
    out = tree.OUT / "lines.json"
    command = [word for word in file.command([file.path.removeprefix("python/")], out) if word != "-x"]
    command[3:3] = ["-p", "traced", "-rA"]
    here = pathlib.Path(__file__).parent
    settings = environment(file, backend)
    settings |= {"PYTHONPATH": f"{settings['PYTHONPATH']}:{here}", "MUTANTS_TRACE": str(out)}
    _, text, file.seconds = tree.run(command, settings, FILE_SECONDS, "python")
    ends = {state: set(re.findall(rf"^{state} ([^\s[]+)", text, re.MULTILINE)) for state in ("PASSED", "FAILED", "ERROR")}
    file.tests = sorted(ends["PASSED"] - ends["FAILED"] - ends["ERROR"])
    file.lines = json.loads(out.read_text()) if out.is_file() else {}


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


os.environ.pop("GPUWM_TEST_FILE", None)
