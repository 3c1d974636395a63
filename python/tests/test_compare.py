"""`python -m gpuwm.compare` on host memory, with the loaders that are installed here."""

from __future__ import annotations

import collections
import importlib
import json
import os
import pathlib
import subprocess
import sys
import types
import xml.etree.ElementTree
from typing import Any

import numpy as np
import pytest
from conftest import Daemon, on_host, write_safetensors

pytestmark = on_host

COMPARE = (sys.executable, "-m", "gpuwm.compare")
SECONDS = 240  # each process of a round imports torch


@pytest.fixture(scope="module")
def source(daemon: Daemon) -> pathlib.Path:
    folder = daemon.models / "compared"
    folder.mkdir()
    tensors = {f"layer.{n}.weight": np.arange(4096, dtype=np.float32) + n for n in range(2)}
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def compare(
    daemon: Daemon, *arguments: object, path: pathlib.Path | None = None
) -> subprocess.CompletedProcess[str]:
    """path: searched by Python before its own packages."""
    paths = [*([str(path)] if path else []), os.environ["PYTHONPATH"]]
    return subprocess.run(
        [
            *(*COMPARE, "--socket", daemon.socket, "--device", "host"),
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={
            **os.environ,
            "PATH": f"{os.environ['GPUWM_BUILD']}/bin:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(paths),
        },
        check=False,
    )


@pytest.fixture(scope="module")
def tool() -> types.ModuleType:
    return importlib.import_module("gpuwm.compare.__main__")


@pytest.fixture(scope="module")
def bench(tool: types.ModuleType) -> types.SimpleNamespace:
    """The modules beside the tool."""
    return types.SimpleNamespace(workers=tool.workers, plot=tool.workers.plot)


def rows_of(said: str) -> dict[str, list[str]]:
    """The figures of a table's rows, by their labels, which end at two spaces."""
    rows = [line.strip().split("  ", 1) for line in said.splitlines() if line.startswith("  ")]
    return {row[0]: row[1].split() for row in rows if len(row) == 2}


def test_both_ways_of_counting(daemon: Daemon, source: pathlib.Path) -> None:
    done = compare(
        daemon,
        *("--loaders", "load_file,safe_open", "--rounds", 2, "--starts", 1, source),
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    warm, _, start = done.stdout.partition("each counted from its process's start")
    gpuwm = "gpuwm, no context kept: gpuwmctl load to ready"
    loaders = ["safetensors.torch.load_file", "safetensors.safe_open"]
    rows = rows_of(warm)
    for label in (gpuwm, *loaders):
        seconds, _, *others = rows[label]
        assert float(seconds) >= 0
        assert others == ["-", "2"]
    assert f"{gpuwm}: ms of each phase: " in warm
    rows = rows_of(start)
    assert len(rows[gpuwm]) == 2
    for label in ("gpuwm.attach, weights there", *loaders):
        whole, imports, context, load, rounds = map(float, rows[label])
        assert whole >= imports + context + load - 0.002
        assert imports > 0
        assert rounds == 1
    assert daemon.admin.list("compare-gpuwm")["versions"] == []


def test_a_copy_of_less_than_a_millisecond(
    tool: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {
        "gpuwm": [0.004],
        "copy": [0.0],
        "load_file": [0.001],
        "attach": [0.0005],
        "phases": {},
    }
    arguments = types.SimpleNamespace(gpu=False, loaders=["load_file"])
    tool.report_warm(figures, 1 << 20, arguments)
    assert rows_of(capsys.readouterr().out)["of it the copy"] == ["0.000", "-", "-", "1"]


def test_a_phase_that_only_some_loads_had(
    tool: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = [{"opening": 1, "copying": 320}, {"copying": 324}, {"copying": 325, "checking": 8}]
    tool.report_phases("kept", [collections.Counter(one) for one in rounds])
    said = capsys.readouterr().out
    assert said.endswith("ms of each phase: opening 0, copying 324, checking 0\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--loaders", "load_files"], "no loader is called 'load_files'; there are load_file, "),
        (["--loaders", "instanttensor"], "instanttensor loads to GPUs only; on host there are "),
        (["--loaders", ","], "names no loader"),
        (["--rounds", "0"], "'0' is no number of rounds: at least 1"),
        (["--starts", "-1"], "'-1' is no number of rounds: at least 1"),
        (["--count", "cold"], "invalid choice: 'cold'"),
        (["--kept-socket", "/s"], "loads to host need no context, so none is kept"),
    ],
)
def test_arguments_that_are_refused(
    daemon: Daemon, source: pathlib.Path, arguments: list[str], said: str
) -> None:
    done = compare(daemon, *arguments, source)
    assert done.returncode != 0
    assert said in done.stderr


def test_a_source_without_weights(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    done = compare(daemon, tmp_path)
    assert done.returncode != 0
    assert f"{tmp_path}: holds no *.safetensors" in done.stderr


def test_a_loader_that_is_not_installed(
    daemon: Daemon, source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "runai_model_streamer.py").write_text('raise ImportError("is not here")')
    done = compare(daemon, "--loaders", "load_file,runai", source, path=tmp_path)
    assert done.returncode != 0
    assert "ImportError: is not here" in done.stderr
    assert "Run:ai model streamer: its process ended with 1, as said above" in done.stderr


def test_a_gpuwmctl_that_fails(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"w": np.zeros(4, np.float32)})
    done = compare(daemon, "--loaders", "load_file", "--count", "warm", tmp_path)
    assert done.returncode != 0
    assert f"gpuwmctl load {tmp_path} compare-gpuwm@warm --device host --wait ended" in done.stderr


def test_a_program_that_is_not_there(source: pathlib.Path) -> None:
    done = subprocess.run(
        [*COMPARE, "--device", "host", source],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PATH": "/nowhere"},
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("there is no gpuwmctl on PATH: ")


# ---- workers ----


def compare_workers(source: pathlib.Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """With a gpuwmd of its own."""
    return subprocess.run(
        [
            *(*COMPARE, "--count", "workers", "--device", "host"),
            *map(str, (*arguments, source)),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PATH": f"{os.environ['GPUWM_BUILD']}/bin:{os.environ['PATH']}"},
        check=False,
    )


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """As a hub cache has it: a link to a blob, which lies outside of the snapshot."""
    repository = tmp_path_factory.mktemp("models--acme--tiny")
    tensors = {f"layer.{n}.weight": np.arange(5001, dtype=np.uint8) for n in range(3)}
    (repository / "blobs").mkdir()
    (repository / "snapshots" / "0123abc").mkdir(parents=True)
    write_safetensors(repository / "blobs" / "cafe", tensors)
    (repository / "snapshots" / "0123abc" / "model.safetensors").symlink_to("../../blobs/cafe")
    return repository / "snapshots" / "0123abc"


def test_workers_read_every_byte(snapshot: pathlib.Path, tmp_path: pathlib.Path) -> None:
    wanted = ("--rounds", 2, "--json", tmp_path / "j", "--svg", tmp_path / "s")
    done = compare_workers(snapshot, *wanted)
    assert done.returncode == 0, done
    told = [line.rpartition(": ")[0] for line in done.stderr.splitlines()]
    assert told[0] == "round 1 of 2: safetensors.torch.load_file"
    assert told[-1] == "round 2 of 2: gpuwm: a second worker attaches"
    found = json.loads((tmp_path / "j").read_text())
    rows = {row["label"]: row for row in found["rows"]}
    readers = ["gpuwm: a worker attaches", "gpuwm: a second worker attaches"]
    for label in ("safetensors.torch.load_file", "safetensors.safe_open", *readers):
        assert rows[label]["bytes"] == 3 * 5001
        assert len(rows[label]["rounds"]) == 2
        assert list(rows[label]["parts"]) == ["imports", "context", "load", "first touch"]
        assert rows[label]["seconds"] >= rows[label]["least"] > 0
        assert label in rows_of(done.stdout)
    assert rows["gpuwm: load, once for all workers"]["bytes"] == found["bytes"]
    assert found["source"] == "0123abc"
    assert found["versions"]["safetensors"]
    assert "warm: 100% of the bytes were in the page cache" in done.stdout
    plot = xml.etree.ElementTree.parse(tmp_path / "s")
    texts = [text.text or "" for text in plot.iter("{http://www.w3.org/2000/svg}text")]
    for label in rows:
        assert label in texts


def test_workers_say_what_is_skipped_and_how_to_get_it(
    bench: types.SimpleNamespace, snapshot: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        bench.workers.importlib.util, "find_spec", lambda name: name == "safetensors" or None
    )
    able, skipped = bench.workers.find(None, [str(snapshot / "model.safetensors")], gpu=False)
    assert able == ["load_file", "safe_open"]
    said = {one["name"]: (one["why"], one["command"]) for one in skipped}
    assert said["runai"] == ("is not installed", "pip install runai-model-streamer")
    assert said["transformers"] == ("is not installed", "pip install transformers")
    assert said["instanttensor"] == ("loads to GPUs only", "")


def test_transformers_is_skipped_if_it_knows_no_such_model(
    bench: types.SimpleNamespace, snapshot: pathlib.Path
) -> None:
    able, skipped = bench.workers.find(
        ["transformers"], [str(snapshot / "model.safetensors")], gpu=False
    )
    assert able == []
    assert "config.json" in skipped[0]["why"]


def test_a_loader_that_was_named_is_not_skipped(snapshot: pathlib.Path) -> None:
    done = compare_workers(snapshot, "--loaders", "runai")
    assert done.returncode != 0
    assert "Run:ai model streamer is not installed: pip install runai-model-streamer" in done.stderr


def test_files_that_stay_in_the_page_cache_are_not_called_cold(
    bench: types.SimpleNamespace,
) -> None:
    shares = bench.workers.PageCache([], True, None)
    shares.shares = [0.0, 0.01]
    assert shares.said().startswith("cold: dropped")
    shares.shares = [0.0, 0.7]
    assert shares.said().startswith("NOT COLD: up to 70% stayed")


def test_what_the_page_cache_has_is_counted(
    bench: types.SimpleNamespace, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    assert bench.workers.cached_bytes(str(path)) == 1 << 20
    cache = bench.workers.PageCache([str(path)], True, None)
    cache.prepare()
    # A file system without a disk keeps its files in memory: then nothing can be dropped.
    assert cache.shares[0] in (0.0, 1.0)
    (tmp_path / "empty").touch()
    assert bench.workers.cached_bytes(str(tmp_path / "empty")) == 0


def test_a_plot_escapes_names(bench: types.SimpleNamespace) -> None:
    rows = [{"label": "<a&b>", "seconds": 0.0, "parts": {"load": 0.0}}]
    text = bench.plot.bars("x<y", "z", ("load",) * 4, rows)
    assert "&lt;a&amp;b&gt;" in text
    xml.etree.ElementTree.fromstring(text)


class Fake:
    """Stands in for a loader's process."""

    def __init__(self, label: str, seconds: float, sums: str) -> None:
        self.peer = types.SimpleNamespace(label=label)
        self.seconds, self.answer = seconds, {"sums": sums}

    def load(self) -> float:
        return self.seconds

    def ask(self, _command: str) -> dict[str, Any]:
        return self.answer


def test_loaders_that_differ_are_not_compared(tool: types.ModuleType) -> None:
    fakes = {"one": Fake("one", 0.1, "a"), "two": Fake("two", 60, "a")}
    assert tool.check(fakes) == {"two"}  # it is too slow to be measured more than once
    fakes["three"] = Fake("three", 0.1, "b")
    with pytest.raises(SystemExit, match="three loaded other tensors than one"):
        tool.check(fakes)


def test_goals_on_a_gpu(tool: types.ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    figures = {
        "ceiling": [0.30, 0.31, 0.40],
        "kept": [0.36],
        "gpuwm": [0.50],
        "copy": [0.32],
        "load_file": [3.2],
        "instanttensor-mmap": [0.4],
        "attach": [0.001],
        "hand": [0.02],
        "phases": {"kept": [collections.Counter(copying=324)]},
    }
    arguments = types.SimpleNamespace(loaders=["load_file", "instanttensor-mmap"], gpu=True)
    tool.report_warm(figures, 16 << 30, arguments)
    said = capsys.readouterr().out
    rows = rows_of(said)
    ceiling = rows["pinned memory to the GPU: the ceiling"]
    assert ceiling == ["0.310", "55.4", "1.00", "3"]
    assert rows["InstantTensor, Backend.MMAP"] == ["0.400", "42.9", "0.77", "1"]
    assert "goal <= 40: MISSED" in said  # 50 ms beyond the ceiling
    beside = rows["context kept / InstantTensor, Backend.MMAP"]
    assert beside == ["0.90", "x", "goal", "<=", "1:", "met"]
    assert "load_file / gpuwm, no context kept" in rows
