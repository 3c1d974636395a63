"""The example of docs/quick-start.md, as pasted: here, and from the wheel in an environment with
nothing else."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import venv

import numpy as np
import pytest
from conftest import Daemon

ROOT = pathlib.Path(__file__).parents[2]


def example() -> str:
    page = (ROOT / "docs/quick-start.md").read_text()
    section = page[page.index("## A worker in Python") :]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found
    return found.group(1)


@pytest.fixture(scope="module")
def demo(daemon: Daemon) -> str:
    array = np.arange(64, dtype=np.float32)
    return daemon.load("demo@v1", {f"layers.000{n}.weight": array + n for n in range(4)})


def pasted(python: str, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [python, "-W", "error", "-c", example()],
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.splitlines()


def test_the_example_works_as_pasted(demo: str, daemon: Daemon) -> None:
    said = pasted(sys.executable, dict(os.environ))
    assert said == [
        f"{demo} {daemon.device} 1024",
        *(f"layers.000{n}.weight F32 (64,)" for n in range(3)),
        "000000000000803f",
        "demo v1 ready 0",
    ]


@pytest.mark.usefixtures("demo")
def test_the_wheel_works_where_nothing_else_is(tmp_path: pathlib.Path) -> None:
    given = os.environ.get("GPUWM_TEST_WHEEL")
    if not given:
        pytest.skip("GPUWM_TEST_WHEEL names no wheel: tests/wheel.sh makes one and names it")
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv/bin/python")
    install = [python, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--no-index"]
    subprocess.run([*install, given], check=True)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") and name != "GPUWM_LIBRARY"
    }
    said = pasted(python, kept)
    assert said[-1] == "demo v1 ready 0"
    code = "import gpuwm, sys; gpuwm.attach('demo'); print(gpuwm._c.lib.load()._name)"
    library = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, env=kept, cwd="/", check=True
    )
    assert library.stdout.startswith(str(tmp_path / "venv/lib"))
    listed = subprocess.run(
        [python, "-m", "pip", "list"], capture_output=True, text=True, check=True
    )
    assert "torch" not in listed.stdout
    assert "numpy" not in listed.stdout
