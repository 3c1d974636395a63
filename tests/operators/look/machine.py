"""A machine that is made up, for doctor: a folder that stands for /, programs, a loader."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from own_gpuwmd import BUILD

NOBODY = 65534


def as_nobody() -> dict[str, Any]:
    """Options of subprocess.run."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


class Machine:
    """Files below a root, and what doctor says of them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.root = folder / "machine"
        self.bin = folder / "tools"
        self.root.mkdir()
        self.bin.mkdir()
        self.program = str(BUILD / "bin/gpuwmctl")
        self.env = {
            **os.environ,
            "GPUWM_DOCTOR_ROOT": str(self.root),
            "GPUWM_SOCKET": str(folder / "gpuwm.sock"),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps",
            "FAKECUDA_RUN": f"doctor{os.getpid()}",
            "COLUMNS": "",
        }
        for name in ("KUBERNETES_SERVICE_HOST", "VIRTUAL_ENV"):
            self.env.pop(name, None)
        self.file("/proc/sys/kernel/osrelease", "6.18.0\n")
        self.file("/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 33554432 kB\n")
        (self.root / "dev/shm").mkdir(parents=True)

    def file(self, path: str, text: str = "", mode: int = 0o644) -> pathlib.Path:
        """Makes a file of the machine."""
        place = self.root / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(mode)
        return place

    def tool(self, name: str, script: str) -> None:
        """Makes a program that $PATH finds first."""
        place = self.bin / name
        place.write_text("#!/bin/sh\n" + script)
        place.chmod(0o755)

    def loader(self, script: str | None) -> None:
        """Puts this script where gpuwmctl looks for gpuwm-loader; None: nothing is there."""
        own = self.folder / "own"
        (own / "bin").mkdir(parents=True)
        shutil.copy(self.program, own / "bin/gpuwmctl")
        (own / "lib").symlink_to(BUILD / "lib")
        self.program = str(own / "bin/gpuwmctl")
        if script is not None:
            place = own / "bin/gpuwm-loader"
            place.write_text("#!/bin/sh\n" + script)
            place.chmod(0o755)

    def probe_says(self, *lines: str) -> None:
        """A loader whose probe prints these lines, with | for tabs, and ends well."""
        text = "\n".join((*lines, "end||ok||")).replace("|", "\t")
        (self.folder / "lines").write_text(text + "\n")
        self.loader(f"cat {self.folder}/lines\n")

    def run(
        self, *words: str, after: Sequence[str] = (), **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs doctor. words, after: what stands before and behind its name."""
        return subprocess.run(
            [self.program, *words, "doctor", *after],
            env=self.env,
            check=False,
            capture_output=True,
            text=True,
            **options,
        )

    def doctor(self, *after: str, **options: Any) -> Doctor:
        """What doctor found, by -o json."""
        told = self.run("-o", "json", after=after, **options)
        assert told.returncode in (0, 1), told.stderr
        return Doctor(json.loads(told.stdout), told.returncode)


class Doctor:
    """An answer of doctor."""

    def __init__(self, told: dict[str, Any], code: int) -> None:
        self.told = told
        self.code = code

    def found(self, group: str, check: str, subject: str | None = None) -> dict[str, str]:
        """The only finding of that check."""
        matching = [
            finding
            for finding in self.told["checks"]
            if finding["group"] == group
            and finding["check"] == check
            and subject in (None, finding.get("subject"))
        ]
        assert len(matching) == 1, (group, check, subject, self.told["checks"])
        return dict(matching[0])

    def says(
        self, verdict: str, group: str, check: str, *words: str, subject: str | None = None
    ) -> None:
        """Asserts the verdict, and words of the finding. What is wrong has a remedy."""
        finding = self.found(group, check, subject)
        assert finding["verdict"] == verdict, finding
        text = finding["found"] + "\n" + finding.get("remedy", "")
        for word in words:
            assert word in text, finding
        assert verdict != "failed" or self.code == 1
        assert verdict not in ("failed", "warning") or "remedy" in finding, finding
