"""The regions of the KV connector: engines that start at once share one, and name what differs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Daemon, on_host
from other_processes import peers

import gpuwm
from gpuwm.vllm.kv import regions
from gpuwm.vllm.kv.settings import Settings

pytestmark = on_host
NAME, BYTES = "shared-r0", 512
HERE = Settings(region="shared", blocks=4)
ENGINE = "regions.of_worker(settings, 0, 512, 'host')"


@pytest.fixture(autouse=True)
def region(daemon: Daemon) -> Iterator[None]:
    yield
    with contextlib.suppress(gpuwm.NotFound, gpuwm.Ended):
        gpuwm.Blocks.remove(NAME)


def of_worker(settings: Settings = HERE, block_bytes: int = BYTES) -> Any:
    return regions.of_worker(settings, 0, block_bytes, "host")


def test_engines_that_start_at_once_share_one_region() -> None:
    with peers(4) as engines:
        for engine in engines:
            engine.run("from gpuwm.vllm.kv import regions", settings=HERE)
        for engine in engines:
            engine.start(f"made = {ENGINE}; made.id, made.tensor()[0].fill_(1)")
        for engine in engines:
            engine.result()
        assert len({engine.run("made.id") for engine in engines}) == 1
        assert {engine.run("(made.blocks, made.block_bytes)") for engine in engines} == {(4, BYTES)}


def test_an_engine_waits_while_another_makes_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    real, refused = gpuwm.Blocks.open, [gpuwm.NotYet("it is being made") for _ in range(3)]

    def opened(*arguments: Any, **named: Any) -> gpuwm.Blocks:
        if refused:
            raise refused.pop()
        return real(*arguments, **named)

    monkeypatch.setattr(gpuwm.Blocks, "open", opened)
    with of_worker() as made:
        assert (made.blocks, refused) == (4, [])


def test_a_region_that_is_not_made_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*arguments: Any, **named: Any) -> gpuwm.Blocks:
        raise gpuwm.NotYet("it is being made")

    monkeypatch.setattr(gpuwm.Blocks, "open", opened)
    monkeypatch.setattr(regions, "_MADE_S", 0.1)
    with pytest.raises(gpuwm.Busy, match=f"a region {NAME}, and it could not be opened in 0.1 s"):
        of_worker()


def test_a_region_that_this_user_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def opened(*arguments: Any, **named: Any) -> gpuwm.Blocks:
        raise gpuwm.NotFound("there is no such thing")

    def create(*arguments: Any, **named: Any) -> gpuwm.Blocks:
        tries.append(named)
        raise gpuwm.Exists("the name is taken")

    monkeypatch.setattr(gpuwm.Blocks, "open", opened)
    monkeypatch.setattr(gpuwm.Blocks, "create", create)
    monkeypatch.setattr(regions, "_MADE_S", 0.2)
    with pytest.raises(gpuwm.Busy, match="belongs to another user"):
        of_worker()
    assert len(tries) <= 0.2 / regions._NAP_S + 1  # it naps between two tries


def test_the_first_engine_gives_the_size() -> None:
    with of_worker() as made, of_worker(Settings(region="shared", gib=1)) as again:
        assert (made.blocks, again.blocks) == (4, 4)


def test_the_first_engine_needs_a_size() -> None:
    with pytest.raises(gpuwm.Invalid, match='"gib" .* is missing'):
        of_worker(Settings(region="shared"))
    with of_worker(), of_worker(Settings(region="shared")) as found:
        assert found.blocks == 4


def test_blocks_of_another_size() -> None:
    with of_worker(), pytest.raises(gpuwm.Mismatch, match="blocks of 512 bytes, .* have 1,024"):
        of_worker(block_bytes=1024)


def test_the_scheduler_looks() -> None:
    with pytest.raises(gpuwm.NotFound):
        regions.of_scheduler(HERE, NAME)
    with of_worker(), peers(1) as (scheduler,):
        scheduler.run("from gpuwm.vllm.kv import regions", settings=HERE, name=NAME)
        assert scheduler.run("regions.of_scheduler(settings, name).find(b'k' * 24)") == 0


def test_a_socket_that_nobody_listens_on() -> None:
    settings = Settings(region="shared", socket="/nowhere/gpuwm.sock")
    with pytest.raises(gpuwm.Unreachable):
        of_worker(settings)
    with pytest.raises(gpuwm.Unreachable):
        regions.of_scheduler(settings, NAME)
