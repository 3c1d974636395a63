"""The KV connector with regions of gpuwmd, on the host."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Daemon, eventually

import gpuwm

from .conftest import NEW
from .kv_asking import ROOM, Engine, forget_vllm
from .kv_steps import ALL, PROMPT, REST

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # vLLM's imports warn
    pytest.mark.skipif(NEW, reason="vLLM's interface for connectors changes"),
]
Start = Callable[..., Engine]


@pytest.fixture
def start(
    daemon: Daemon, checkpoints: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Start]:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    started = []

    def starting(role: str = "kv_both", worker: str = "Worker", **arguments: Any) -> Engine:
        started.append(Engine(checkpoints / "dense", worker, role, **arguments))
        return started[-1]

    yield starting
    for engine in started:
        engine.end()
    forget_vllm()
    with contextlib.suppress(gpuwm.NotFound):
        gpuwm.Blocks.remove("kv-r0")


def test_one_engine_puts_and_another_gets(start: Start) -> None:
    prefill, decode = start("kv_producer"), start("kv_consumer")
    assert prefill.computed(PROMPT) == ALL
    assert decode.computed(PROMPT) == REST
    assert figures() == {"blocks": ROOM, "free": ROOM - 5, "owned": 0, "ready": 5, "held": 0}


def figures() -> dict[str, int]:
    with gpuwm.Blocks.open("kv-r0", look=True) as blocks:
        return dict(blocks.figures()._asdict())


def test_two_ranks_with_a_scheduler_in_a_process_of_its_own(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks keys up in the regions of both, and learns of a switch before the engine goes on."""
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    ranks = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
    first = start(**ranks)
    assert first.computed(PROMPT) == ALL
    first.forget()
    assert first.computed(PROMPT) == REST
    assert first.ask_rank("blocks_loaded") == 4
    first.switch("v2")
    assert first.computed(PROMPT) == ALL
    first.switch("v1")
    assert first.computed(PROMPT) == REST
    with gpuwm.Blocks.open("kv-r1", look=True) as blocks:
        assert blocks.figures().ready == 10
    first.end()
    gpuwm.Blocks.remove("kv-r1")


def test_an_engine_goes_on_when_gpuwmd_is_killed(start: Start, daemon: Daemon) -> None:
    """What is in the region is still found, and more is put."""
    first, second = start(), start()
    first.computed(PROMPT)
    daemon.kill()
    assert second.computed(PROMPT) == REST
    other = [7] * len(PROMPT)
    assert second.computed(other) == ALL
    assert first.computed(other) == REST
    daemon.start()


FILLS = """
import sys
import gpuwm
blocks = gpuwm.Blocks.open("kv-r0")
reserved = blocks.reserve([bytes([number]) * 24 for number in range(int(sys.argv[1]))])
print(len(reserved.numbers), flush=True)
sys.stdin.read()
"""


def test_blocks_of_a_prefill_that_is_killed_are_free_again(start: Start) -> None:
    """It had reserved all of them, and had not published them."""
    engine = start()
    with subprocess.Popen(
        [sys.executable, "-c", FILLS, str(ROOM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as prefill:
        assert prefill.stdout is not None
        assert prefill.stdout.readline() == f"{ROOM}\n".encode()
        assert engine.computed(PROMPT) == ALL
        engine.forget()
        assert engine.computed(PROMPT) == ALL  # there was no room
        prefill.send_signal(signal.SIGKILL)
        prefill.wait()
    eventually(lambda: figures()["owned"] == 0)
    engine.forget()
    assert engine.computed(PROMPT) == ALL
    engine.forget()
    assert engine.computed(PROMPT) == REST


def test_a_region_that_is_removed(start: Start) -> None:
    engine = start()
    engine.computed(PROMPT)
    gpuwm.Blocks.remove("kv-r0")
    engine.forget()
    assert engine.computed(PROMPT) == ALL
    start(options={"region": "other"})
    gpuwm.Blocks.remove("other-r0")
