"""Which functions of a SGLang may write weights, by its text alone."""

from __future__ import annotations

import importlib.util
import pathlib

from . import writers


def test_all_that_write_are_known() -> None:
    found = importlib.util.find_spec("sglang")
    assert found is not None
    assert found.submodule_search_locations is not None
    (folder,) = map(pathlib.Path, found.submodule_search_locations)
    assert writers.unknown(folder.parent) == []


def test_a_function_that_is_new_is_named(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "sglang" / "srt" / "managers"
    folder.mkdir(parents=True)
    folder.joinpath("trainer.py").write_text(
        "class Trainer:\n"
        "    def update_weights_from_rdma(self): ...\n"
        "    def go_on(self):\n"
        "        self.model.load_weights([])\n"
    )
    assert writers.unknown(tmp_path) == [
        "managers/trainer.py:Trainer.update_weights_from_rdma may write weights "
        "(update_weights_from_rdma)",
        "managers/trainer.py:Trainer.go_on may write weights (load_weights)",
    ]
