"""The sweep tells what is wrong with a model."""

from __future__ import annotations

import json
import pathlib

import pytest
from conftest import daemon  # noqa: F401  (the fixture)

from tests_models import __main__, table
from tests_models.__main__ import Sweep

OUTCOMES = {
    "Whole": ("equal", ""),
    "Lossy": ("differs", "model: output.made differs by up to"),
    "Refused": ("refused", "odd: torch.complex128, which versions don't have"),
    "Deadly": ("died", "publish: the process ended with code 3"),
    "Endless": ("died", "publish: no answer in 3 s of a processor"),
    "Unrun": ("unrun", ""),
    "Large": ("not made", "256 MiB"),
}


@pytest.mark.usefixtures("daemon")
def test_each_fault_has_its_outcome(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(__main__, "PUBLISH_SECONDS", 3)
    sweep = Sweep("trial", list(OUTCOMES), tmp_path / "rows")
    sweep.work(0)
    lines = (tmp_path / "rows").read_text().splitlines()
    rows = {row["name"]: row for row in map(json.loads, lines)}
    for name, (outcome, words) in OUTCOMES.items():
        assert rows[name]["outcome"] == outcome, rows[name]
        assert words in rows[name]["words"]
    assert sweep.counts.total() == len(OUTCOMES)
    assert sweep.seconds >= rows["Endless"]["seconds"] > 2.9


def test_the_page_is_of_the_rows() -> None:
    assert table.PAGE.read_text() == table.page()
