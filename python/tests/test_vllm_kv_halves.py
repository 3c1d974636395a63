"""The halves of the KV connector without vLLM: what tells the scheduler's half which weights the KV
is of, and what the worker's half copies."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from kv_blocks import Blocks, Memory

import gpuwm
from gpuwm.vllm.kv import chain
from gpuwm.vllm.kv.failures import Failures
from gpuwm.vllm.kv.layout import layout_of
from gpuwm.vllm.kv.messages import Copies, Rank, Report, Step
from gpuwm.vllm.kv.page import Page, Reader
from gpuwm.vllm.kv.weights import Weights
from gpuwm.vllm.kv.worker import Unrecovered, Working

A, B = b"a" * chain.KEY_BYTES, b"b" * chain.KEY_BYTES
KEYS = [bytes([number]) * chain.KEY_BYTES for number in range(1, 9)]


# ---- pages ----


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    yield made
    made.close()


def test_a_page_has_nothing_until_it_is_written(page: Page) -> None:
    reader = Reader(page.path)
    assert reader.read() is None
    page.write(A)
    assert reader.read() == A
    page.write(B)
    assert reader.read() == B
    reader.close()


def test_half_of_an_identity_is_none(page: Page) -> None:
    reader = Reader(page.path)
    page.write(A)
    page._memory[:4] = B[:4]
    assert reader.read() is None
    reader.close()


def test_a_page_of_a_process_that_has_ended(page: Page) -> None:
    failures = Failures("test")
    weights = Weights([page.path, "/proc/0/fd/3"], failures)
    assert (weights.root(), failures.count) == ((None, False), 1)


# ---- weights ----


@pytest.fixture
def weights(page: Page) -> Iterator[Weights]:
    page.write(A)
    made = Weights([page.path], Failures("test"))
    yield made
    made.close()


def test_the_first_weights_are_taken(weights: Weights) -> None:
    root = chain.root_of([A])
    assert weights.root() == (root, True)
    assert weights.root() == (root, False)
    assert weights.identities == (A,)


def test_other_weights_are_taken_after_a_reset_in_a_pause(weights: Weights, page: Page) -> None:
    weights.root()
    weights.computed()
    weights.dropped(True)
    page.write(B)
    assert weights.root() == (chain.root_of([B]), True)


def test_a_reset_after_the_weights_changed_counts_too(weights: Weights, page: Page) -> None:
    weights.root()
    weights.computed()
    page.write(B)
    assert weights.root() == (None, False)
    weights.dropped(True)
    assert weights.root() == (chain.root_of([B]), True)


def test_a_reset_that_did_not_drop_everything_does_not_count(weights: Weights, page: Page) -> None:
    weights.root()
    weights.computed()
    weights.dropped(False)
    page.write(B)
    assert weights.root() == (None, False)


def test_a_reset_before_a_step_does_not_count(weights: Weights, page: Page) -> None:
    weights.root()
    weights.dropped(True)
    weights.computed()
    page.write(B)
    assert weights.root() == (None, False)


def test_kv_of_two_weights_is_not_shared_when_the_first_come_back(
    weights: Weights, page: Page
) -> None:
    weights.root()
    weights.computed()
    page.write(B)
    weights.computed()
    page.write(A)
    assert weights.root() == (None, False)
    weights.dropped(True)
    assert weights.root() == (chain.root_of([A]), True)


def test_weights_that_were_there_and_back_between_two_steps(weights: Weights, page: Page) -> None:
    root, _ = weights.root()
    weights.computed()
    page.write(B)
    page.write(A)
    assert weights.root() == (root, False)


# ---- the worker's half ----


class Half:
    """A worker's half, its cache of four blocks, and a region of six."""

    def __init__(self, recovers: bool = True) -> None:
        self.cache = torch.zeros((4, 64), dtype=torch.int64)
        layout = layout_of({"layer": self.cache}, 4, {"layer": 0})
        self.memory = Memory(6, layout.block_bytes)
        self.weights = "v1"
        self.working = Working(0, recovers)
        self.working.register(layout, {}, lambda: self.weights, "kv-r0", Blocks(self.memory))
        self._number = 0

    def step(self, loads: Any = (), saves: Any = (), settled: int = 0, at: Any = None) -> Report:
        """loads, saves: (key, block). at: the identity for which the keys are."""
        self._number += 1
        identity = self.working._identity if at is None else at
        step = Step(self._number, (identity,), _copies(loads), _copies(saves), settled)
        self.working.begin(pickle.loads(pickle.dumps(step)))
        self.working.load()
        self.working.save()
        report = self.working.report()
        assert report is not None
        return report


def _copies(pairs: Any) -> Copies:
    copies = Copies()
    for key, block in pairs:
        copies.add(KEYS[key], [block])
    return copies


def test_a_worker_loads_what_it_has_put() -> None:
    half = Half()
    half.cache[1], half.cache[2] = 11, 22
    half.step(saves=[(0, 1), (1, 2)])
    half.step(loads=[(1, 0), (0, 3)])
    assert half.cache[:, 0].tolist() == [22, 11, 22, 11]
    assert half.working.invalid() == set()
    assert Blocks(half.memory).holds() == 0


def test_a_key_that_is_there_is_not_put_again() -> None:
    half = Half()
    half.cache[1], half.cache[2] = 11, 22
    half.step(saves=[(0, 1)])
    half.step(saves=[(0, 2), (1, 2)])
    half.step(loads=[(0, 0)])
    assert half.cache[0, 0] == 11
    assert Blocks(half.memory).ready() == 2


def test_what_is_not_there_is_reported() -> None:
    half = Half()
    half.step(saves=[(0, 1)])
    assert half.step(loads=[(0, 0), (1, 2), (2, 3)]).failed
    assert half.working.invalid() == {2, 3}
    assert not half.step().failed


def test_nothing_is_put_until_a_failure_is_known() -> None:
    half = Half()
    half.step(loads=[(0, 0)], saves=[(1, 1)])  # the first step
    half.step(saves=[(1, 1)])
    assert Blocks(half.memory).ready() == 0
    half.step(saves=[(1, 1)], settled=1)
    assert Blocks(half.memory).ready() == 1


def test_keys_of_other_weights_are_neither_loaded_nor_put() -> None:
    half = Half()
    half.step(saves=[(0, 1)])
    old = half.working._identity
    half.weights = "v2"
    half.working.weights_changed()
    half.step(saves=[(1, 1)], at=old)
    assert half.step(loads=[(0, 0)], at=old).failed
    assert Blocks(half.memory).ready() == 1
    half.weights = "v1"
    half.working.weights_changed()
    assert half.working._identity == old
    assert not half.step(loads=[(0, 0)], at=old).failed


def test_weights_that_can_not_be_told_are_nobody_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise gpuwm.Closed("the mapping was closed", "")

    half = Half()
    old, reader = half.working._identity, Reader(half.working._page.path)
    monkeypatch.setattr(half.working, "_weights", unknown)
    with pytest.raises(gpuwm.Closed):
        half.working.weights_changed()
    assert reader.read() is None
    half.step(saves=[(0, 1)], at=old)
    assert Blocks(half.memory).ready() == 0
    reader.close()


def test_an_engine_that_can_not_recover_stops() -> None:
    half = Half(recovers=False)
    with pytest.raises(Unrecovered, match="could load 0 of the 1 blocks"):
        half.step(loads=[(0, 0)])


def test_a_full_region_takes_what_it_has_room_for() -> None:
    half = Half()
    half.step(saves=[(key, key % 4) for key in range(8)])
    assert Blocks(half.memory).ready() == 6
    held = Blocks(half.memory).hold(b"".join(KEYS[:6]))
    half.step(saves=[(7, 0)])
    held.release()
    assert Blocks(half.memory).ready() == 6


def test_a_region_that_has_ended_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    half = Half()
    half.memory.down = True
    with caplog.at_level(logging.WARNING, "vllm.gpuwm"):
        half.step(saves=[(0, 1)])
        half.step(saves=[(0, 1)])
    assert len(caplog.records) == 1
    assert "could not put blocks" in caplog.text


def test_a_report_of_all_ranks() -> None:
    assert Report(4).aggregate(Report(4, failed=True)) == Report(4, failed=True)
    assert pickle.loads(pickle.dumps(Rank("kv-r0", 256, "/proc/1/fd/2"))).region == "kv-r0"


def test_importing_the_package_imports_neither_vllm_nor_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys, gpuwm.vllm.kv, gpuwm.vllm.kv.chain, gpuwm.vllm.kv.scheduler\n"
        "print([name for name in ('vllm', 'torch', 'triton') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "[]"


def test_the_module_has_no_other_names() -> None:
    import gpuwm.vllm.kv as package

    assert "GpuwmConnector" in dir(package)
    misspelt = "GpuwmConector"
    with pytest.raises(AttributeError, match=misspelt):
        getattr(package, misspelt)
    assert gpuwm.vllm is not None
