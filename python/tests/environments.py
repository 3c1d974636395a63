"""Environments of their own, into which tests install the wheel."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import venv

import pytest


def given_wheel() -> pathlib.Path:
    """The wheel to try. Skips the test if there is none."""
    given = os.environ.get("GPUWM_TEST_WHEEL")
    if not given:
        pytest.skip("GPUWM_TEST_WHEEL names no wheel: tests/wheel.sh makes one and names it")
    return pathlib.Path(given)


class Environment:
    """An environment of its own, without pip, into which the tests' pip installs."""

    def __init__(self, folder: pathlib.Path) -> None:
        venv.create(folder)
        self.folder = folder
        self.python = str(folder / "bin/python")

    def pip(self, *words: str | pathlib.Path) -> None:
        pip = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check"]
        subprocess.run([*pip, "-q", *words], check=True)

    def run(self, code: str) -> str:
        """Returns the last line of what the code prints, or of its error."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [self.python, "-c", code],
            cwd="/",
            env=kept,
            capture_output=True,
            text=True,
            check=False,
        )
        return (done.stdout + done.stderr).splitlines()[-1]

    def doctor(self) -> str:
        """The verdict of gpuwmctl doctor on this environment, and what it found."""
        done = subprocess.run(
            [pathlib.Path(os.environ["GPUWM_BUILD"], "bin/gpuwmctl"), "-o", "json", "doctor"],
            env={**os.environ, "VIRTUAL_ENV": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        (found,) = (
            check
            for check in json.loads(done.stdout)["checks"]
            if check.get("subject", "").startswith(str(self.folder))
        )
        return f"{found['verdict']}: {found['found']}"
