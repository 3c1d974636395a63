"""Which functions of a SGLang may write weights, by its text alone."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil

import pytest

from . import writers


@pytest.fixture
def copy(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with a copy of this SGLang, whose files are links."""
    found = importlib.util.find_spec("sglang")
    assert found is not None
    assert found.submodule_search_locations is not None
    (folder,) = found.submodule_search_locations
    unread = shutil.ignore_patterns("__pycache__", "multimodal_gen", "test", "kernels")
    shutil.copytree(folder, tmp_path / "sglang", copy_function=os.symlink, ignore=unread)
    return tmp_path


def test_all_that_write_are_known(copy: pathlib.Path) -> None:
    assert writers.unknown(copy) == []


def test_a_function_that_is_new_is_named(copy: pathlib.Path) -> None:
    copy.joinpath("sglang/srt/managers/trainer.py").write_text(
        "class Trainer:\n"
        "    def update_weights_from_rdma(self): ...\n"
        "    def go_on(self):\n"
        "        self.model.load_weights([])\n"
    )
    assert writers.unknown(copy) == [
        "managers/trainer.py:Trainer.update_weights_from_rdma may write weights "
        "(update_weights_from_rdma)",
        "managers/trainer.py:Trainer.go_on may write weights (load_weights)",
    ]
