"""The map of the C code: nothing reaches up, no knot is large, and scripts/layers sees each
fault that it is there for."""

from __future__ import annotations

import os
import pathlib
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

MAP = """
[tree]
above: top
below: low lower
low shows: low deep/deep
[top]
main: main
rest: rest
[low]
all: * deep/*
[lower]
all: *
"""
REST = '#include "../low/low.h"\n#include "../low/deep/deep.h"\n'
HOUSE = {
    "top/main.c": '#include "rest.h"\nint main(void) { return rest(); }\n',
    "top/rest.h": "int rest(void);\n",
    "top/rest.c": REST + "int rest(void) { return low() + deep(); }\n",
    "low/low.h": "int low(void);\n",
    "low/low.c": '#include "low.h"\nint low(void) { return 0; }\n',
    "low/hidden.h": "enum { HIDDEN };\n",
    "low/deep/deep.h": "int deep(void);\n",
    "low/deep/deep.c": '#include "deep_internal.h"\nint deep(void) { return DEEP; }\n',
    "low/deep/deep_internal.h": "enum { DEEP };\n",
    "lower/lower.h": "int lower(void);\n",
    "lower/lower.c": '#include "lower.h"\nint lower(void) { return 0; }\n',
}


def layers(build: pathlib.Path, root: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, LAYERS, build],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "LAYERS_ROOT": str(root)},
    )


def house(
    root: pathlib.Path, changes: dict[str, str], tree_map: str = MAP
) -> subprocess.CompletedProcess[str]:
    """What the script says of a small tree, with these files in place of its own."""
    for name, text in {**HOUSE, "scripts/layers.map": tree_map, **changes}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for source in root.rglob("*.c"):
        made = (root / "build/obj" / source.relative_to(root)).with_suffix(".o")
        made.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["gcc", "-w", "-std=gnu89", "-c", source, "-o", made], check=True)
    return layers(root / "build", root)


def test_the_tree_is_in_order() -> None:
    done = layers(pathlib.Path(os.environ["GPUWM_BUILD"]).absolute(), ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_house_in_order(tmp_path: pathlib.Path) -> None:
    done = house(tmp_path, {})
    assert (done.returncode, done.stderr) == (0, "")
    assert "knots: none" in done.stdout


FAULTS = {
    "a header of a folder above": (
        {"low/low.c": '#include "../top/rest.h"\nint low(void) { return 0; }\n'},
        "reaches up to top",
    ),
    "a header of the same floor": (
        {"lower/lower.c": '#include "../low/low.h"\nint lower(void) { return 0; }\n'},
        "lower and low are on one floor",
    ),
    "a header that is not shown": (
        {"top/main.c": '#include "../low/hidden.h"\nint main(void) { return 0; }\n'},
        "low does not show it",
    ),
    "a private header": (
        {"low/low.c": '#include "deep/deep_internal.h"\nint low(void) { return 0; }\n'},
        "that header is private to low/deep",
    ),
    "a call upwards": (
        {
            "top/main.c": "int again(void) { return 1; }\nint main(void) { return rest(); }\n",
            "top/rest.c": REST + "int rest(void) { return low() + deep() + again(); }\n",
        },
        "top/rest reaches up to top/main: again",
    ),
    "a file on no floor": ({"top/new.c": "int new;\n"}, "[top] places no top/new"),
    "code in no folder": ({"new/new.c": "int new;\n"}, "new/new.c is in no folder of [tree]"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_code_is_found(fault: str, tmp_path: pathlib.Path) -> None:
    changes, says = FAULTS[fault]
    done = house(tmp_path, changes)
    assert done.returncode == 1
    assert says in done.stderr


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("low lower", "low lower other", "[tree]: other has no section"),
        ("low lower", "low", "[tree] places no lower"),
        ("main: main", "main: main gone", "[top]: no file gone"),
        ("shows: low", "shows: hidden low", "nobody includes low/hidden.h"),
    ],
)
def test_a_fault_of_the_map_is_found(
    right: str, wrong: str, says: str, tmp_path: pathlib.Path
) -> None:
    done = house(tmp_path, {}, MAP.replace(right, wrong))
    assert done.returncode == 1
    assert says in done.stderr


@pytest.mark.parametrize(("size", "status"), [(3, 0), (4, 1)])
def test_a_knot_may_have_three_files(size: int, status: int, tmp_path: pathlib.Path) -> None:
    ring = {
        f"lower/ring{n}.c": f"int ring{n}(void) {{ return ring{n % size + 1}(); }}\n"
        for n in range(1, size + 1)
    }
    done = house(tmp_path, ring)
    assert done.returncode == status, done.stderr
    assert f"knots: {size}" in done.stdout
    if status:
        done = house(tmp_path, ring, MAP + "tables: ring1\n")
        assert (done.returncode, done.stderr) == (0, "")
