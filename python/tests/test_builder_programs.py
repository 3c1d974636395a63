"""Builders of programs: in the main module, in multiprocessing's children, and where another
program imports them."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import by_torch

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]

# What a program calls __main__: a module, a function that the module holds, a dataclass, an enum.
PROGRAM = """
import concurrent.futures, dataclasses, enum, multiprocessing, sys
import torch, gpuwm
class Kind(enum.Enum):
    WIDE = 1
@dataclasses.dataclass
class Config:
    hidden: int = 4
    kind: Kind = Kind.WIDE
def doubled(x):
    return x * 2
class Net(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.inner, self.act, self.kind = torch.nn.Linear(4, config.hidden), doubled, config.kind
@gpuwm.builder(ttl=600)
def net(config):
    print("builds", flush=True)
    return Net(config)
def look():
    model = net(Config())
    assert (type(model), model.kind, model.act) == (Net, Kind.WIDE, doubled)
    return net.key(Config())
if __name__ == "__main__":
    if "first" in sys.argv:
        look()
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
            print(executor.submit(look).result())
            assert executor.submit(net.key, Config()).result() == net.key(Config())
"""


def run(arguments: list[str], folder: pathlib.Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{folder}"},
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout.splitlines()


@pytest.mark.parametrize("first", ["first", "last"])
def test_children_and_importers_have_what_a_program_built(
    first: str, tmp_path: pathlib.Path
) -> None:
    """Also if a child builds it, and the program attaches."""
    name = f"program_{first}"
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    builds, key, same = run([f"{name}.py", first], tmp_path)
    assert (builds, key) == ("builds", same)
    assert key.startswith(f"{name}.net@config-")
    assert run(["-c", f"import {name}; print({name}.look())"], tmp_path) == [key]
    assert run(["-m", name, "first"], tmp_path) == [key, key]


def test_a_folder_has_the_name_of_the_folder(tmp_path: pathlib.Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text(
        "import gpuwm\n@gpuwm.builder\ndef f():\n    return 1\nprint(f.model)\n"
    )
    assert run(["app"], tmp_path) == ["app.f"]


def test_an_interactive_program_names_its_models(tmp_path: pathlib.Path) -> None:
    code = "import gpuwm\ndef f(): pass\ntry: gpuwm.builder(f)\nexcept gpuwm.Invalid as e: print(e)"
    (said,) = run(["-c", f"__file__ = '<stdin>'\n{code}"], tmp_path)
    assert said.startswith("f of an interactive program has no name by which other processes")
    assert "gpuwm.builder(model='name')" in said
