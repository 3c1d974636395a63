"""The floors of the C code: nothing reaches up, no knot is large, and scripts/layers sees both."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from conftest import DEVICE

ROOT = pathlib.Path(__file__).parents[2]
LAYERS = ROOT / "scripts" / "layers"
# The bundle for GPU machines has no object files. What they hold depends on no kind of memory.
pytestmark = pytest.mark.skipif(
    not LAYERS.exists() or DEVICE != "cpu", reason="the object files are not here, or looked at"
)


def layers(script: pathlib.Path, build: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, script, build], check=False, capture_output=True, text=True
    )


def house(tmp_path: pathlib.Path, sources: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What the script says of a house of two floors: `top` has one file, `under` has four."""
    for folder in ("scripts/layers.d", "house", "obj/house"):
        (tmp_path / folder).mkdir(parents=True)
    script = tmp_path / "scripts" / "layers"
    shutil.copy(LAYERS, script)
    (tmp_path / "scripts/layers.d/house").write_text("top: roof\nunder: room1 room2 room3 room4\n")
    for name in ("roof", "room1", "room2", "room3", "room4"):
        source = tmp_path / "house" / f"{name}.c"
        source.write_text(f"void {name}(void) {{ {sources.get(name, '')} }}\n")
        made = tmp_path / "obj" / "house" / f"{name}.o"
        words = ["gcc", "-w", "-std=gnu89", "-c", str(source), "-o", str(made)]
        subprocess.run(words, check=True)
    return layers(script, tmp_path)


def test_nothing_reaches_up() -> None:
    done = layers(LAYERS, pathlib.Path(os.environ["GPUWM_BUILD"]).absolute())
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_call_down_is_right(tmp_path: pathlib.Path) -> None:
    done = house(tmp_path, {"roof": "room1();", "room1": "room2();"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "knots: none" in done.stdout


def test_a_call_up_is_found(tmp_path: pathlib.Path) -> None:
    done = house(tmp_path, {"room1": "roof();"})
    assert done.returncode == 1
    assert "house/room1 reaches up to house/roof: roof" in done.stderr


@pytest.mark.parametrize(("size", "status"), [(3, 0), (4, 1)])
def test_a_knot_may_have_three_files(size: int, status: int, tmp_path: pathlib.Path) -> None:
    sources = {f"room{n}": f"room{n % size + 1}();" for n in range(1, size + 1)}
    done = house(tmp_path, sources)
    assert done.returncode == status, done.stderr
    assert f"knots: {size}" in done.stdout
