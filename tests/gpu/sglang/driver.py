"""Engines of SGLang on weights that gpuwm holds, on a machine with a GPU.

    tests/gpu/sglang/run OUT [PART]... [--model small]
Prints tables and checks. OUT gets sglang.txt (what was printed), engines.jsonl (everything
measured) and the log of each engine and of gpuwmd. The README beside this says more."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from typing import Any

from memory import Gpus, Watch
from report import Report
from service import Service

HERE = pathlib.Path(__file__).resolve().parent
ENGINE_S = 240  # until an engine has answered: the first one compiles SGLang's kernels
LOOK_S = 0.05  # between two readings of the GPU's memory
END_S = 30  # for an engine and all processes that it started
LOG_LINES = 40  # shown of an engine that failed
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "eager": ("no CUDA graphs", {"disable_cuda_graph": True}),
    "graphs": ("SGLang's defaults", {}),
    "fp8": ("quantised at load", {"disable_cuda_graph": True, "quantization": "fp8"}),
}
GPUWM_LINE = re.compile(r"gpuwm: (?:built|attached) .*")


class Engine:
    """engine.py in a process group of its own, as SGLang starts further processes."""

    def __init__(self, run: Run, name: str, options: dict[str, Any]) -> None:
        self.name, self._run = name, run
        self.log = run.out / f"{run.report.part}-{name}.log"
        self._answer = run.state / f"{run.report.part}-{name}.json"
        self._answer.unlink(missing_ok=True)
        given = self._answer.with_suffix(".options")
        given.write_text(json.dumps(options))
        self._watch = Watch(run.gpus).begin()
        self._process = subprocess.Popen(
            [sys.executable, str(run.engine), str(given), str(self._answer)],
            stdin=subprocess.PIPE,
            stdout=self.log.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def answered(self) -> dict[str, Any]:
        """What engine.py wrote, and the memory; "error" where it failed."""
        deadline = time.monotonic() + ENGINE_S
        while not self._answer.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                break
            self._watch.look()
            time.sleep(LOOK_S)
        found: dict[str, Any]
        if self._answer.exists():
            found = json.loads(self._answer.read_text())
        else:
            ended = self._process.poll()
            late = f"no answer after {ENGINE_S} s"
            found = {"error": late if ended is None else f"ended with {ended}"}
        text = self.log.read_text(errors="replace")
        found["gpuwm"] = GPUWM_LINE.findall(text)
        found["peak_mib"] = self._watch.most
        if "error" in found:
            self._run.report.note(f"{self.name}: {found['error']}")
            for line in [*found.get("trace", "").splitlines(), *text.splitlines()[-LOG_LINES:]]:
                self._run.report.note(f"| {line[:220]}")
        self._run.report.record("engine", name=self.name, **found)
        return found

    def end(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Run:
    def __init__(self, given: argparse.Namespace) -> None:
        self.out, self.state, self.engine = given.out.resolve(), given.state, given.engine
        self.out.mkdir(parents=True, exist_ok=True)
        self.state.mkdir(parents=True, exist_ok=True)
        self.gpus, self.report = Gpus(), Report(self.out)
        self.models = self.state / "models"
        self.model = self.models / given.model
        maker = [sys.executable, str(HERE.parent / "engines" / "models.py")]
        subprocess.run([*maker, str(self.models), given.model], check=True)
        self.service = Service(given.programs, self.out / "gpuwm", [self.models])

    def part(self, name: str) -> None:
        """SGLang's own load; the first engine with gpuwm; the next one, while the first serves."""
        title, options = PARTS[name]
        self.report.begin(name, title)
        self.report.head("engine", "Engine() s", "answers s", "KV tokens", "peak MiB", "used MiB")
        options = {"model_path": str(self.model), **options}
        shared = {**options, "load_format": "gpuwm"}
        begin = sum(self.gpus.settled_mib())
        own = self._one("own", options, begin)
        # Engines that outlived a part would hold its version, and the next part could not have it.
        with contextlib.ExitStack() as ends:
            first_engine = Engine(self, "first", shared)
            ends.callback(first_engine.end)
            first = self._row("first", first_engine.answered(), begin)
            next_engine = Engine(self, "next", {**shared, "update": str(self.model)})
            ends.callback(next_engine.end)
            following = self._row("next", next_engine.answered(), begin)
            for version in self.service.versions():
                size = sum(each["bytes"] for each in version["parts"])
                told = f"{version['state']}, {size} bytes, {version['leases']} leases"
                self.report.note(f"{version['model']}@{version['tag']}: {told}")
            self._check(own, first, following)
        after = self._one("after the others ended", shared, begin)
        same = after.get("answers") == own.get("answers")
        self.report.check(same, "the version outlives its engines")
        self.service.retire_all()
        left = sum(self.gpus.settled_mib()) - begin
        self.report.note(f"memory that is left in use: {left} MiB")

    def _check(self, own: dict[str, Any], first: dict[str, Any], following: dict[str, Any]) -> None:
        check = self.report.check
        check("answers" in own, "SGLang answers with its own loader")
        for name, found in (("first", first), ("next", following)):
            same = "answers" in own and found.get("answers") == own["answers"]
            check(same, f"{name}: tokens and log-probabilities are those of SGLang's own load")
        check(any("built" in line for line in first["gpuwm"]), "the first engine built")
        check(any("attached" in line for line in following["gpuwm"]), "the next one attached")
        for line in (*first["gpuwm"], *following["gpuwm"]):
            self.report.note(line)
        told = following.get("update", "not asked")
        check("False" in told and "read-only" in told, f"weights are not updated: {told[:150]}")
        unharmed = following.get("answers_after_update") == following.get("answers", 0)
        check(unharmed, "answers after that are the same")

    def _one(self, name: str, options: dict[str, Any], begin: int) -> dict[str, Any]:
        engine = Engine(self, name.replace(" ", "-"), options)
        try:
            return self._row(name, engine.answered(), begin)
        finally:
            engine.end()
            self.gpus.settled_mib()

    def _row(self, name: str, found: dict[str, Any], begin: int) -> dict[str, Any]:
        used = sum(self.gpus.used_mib()) - begin
        times = (found.get("engine_s"), found.get("answers_s"))
        self.report.row(name, *times, found.get("kv_tokens"), found["peak_mib"], used)
        return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--model", default="small", help="of engines/models.py")
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="the folder of gpuwmd")
    parser.add_argument("--state", type=pathlib.Path, required=True, help="what stays for later")
    parser.add_argument("--engine", type=pathlib.Path, default=HERE / "engine.py")
    found = parser.parse_intermixed_args()
    found.parts = found.parts or ["eager", "graphs"]
    if unknown := set(found.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return found


def main() -> int:
    given = arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    copy = subprocess.Popen(["tee", str(given.out / "sglang.txt")], stdin=subprocess.PIPE)
    assert copy.stdin is not None
    os.dup2(copy.stdin.fileno(), 1)
    os.dup2(1, 2)
    run = Run(given)
    try:
        for part in given.parts:
            try:
                run.part(part)
            except Exception:
                traceback.print_exc()
                run.report.check(False, f"{part} got to its end")
                run.service.retire_all()
    finally:
        run.service.stop()
        shutil.rmtree(given.out / "gpuwm" / "cache", ignore_errors=True)
    print(f"\n{len(run.report.failed)} failed", *run.report.failed, sep="\n  ", flush=True)
    copy.stdin.close()
    os.close(1)
    os.close(2)
    copy.wait()
    return int(bool(run.report.failed))


if __name__ == "__main__":
    sys.exit(main())
