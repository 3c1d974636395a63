"""gpuwm.wrap and gpuwm.unwrap: modes, places of errors, and what a failure gives back."""

from __future__ import annotations

import dataclasses
import gc
import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from conftest import DEVICE, Daemon, by_torch, eventually, on_host, once
from other_processes import Peer, peers
from test_transport_pool import is_free

import gpuwm

pytestmark = by_torch
ROOM = 2 << 20  # of a pool: a GPU's memory comes in such pieces


class Features(NamedTuple):
    pixels: Any
    grid: Any


@dataclasses.dataclass
class Request:
    id: str
    features: Any
    note: Any = None


def request() -> Request:
    images = [torch.full((2, 3), float(n)) for n in range(3)]
    return Request("r1", {"images": images, "f": Features(images[0], None)}, ("text", 5))


@pytest.fixture
def pool(daemon: Daemon) -> Iterator[gpuwm.Pool]:
    with gpuwm.Pool(ROOM, DEVICE) as made:
        yield made
        gc.collect()


@pytest.fixture
def host(daemon: Daemon) -> Iterator[gpuwm.Pool]:
    with gpuwm.Pool(ROOM) as made:
        yield made
        gc.collect()


@pytest.fixture(scope="module")
def peer(daemon: Daemon) -> Iterator[Peer]:
    with peers(1) as (one,):
        one.run(f"import sys; sys.path.insert(0, {str(__file__).rpartition('/')[0]!r})")
        yield one


_SUMS = """
def sums(found):
    images = found.features["images"]
    return [float(each.sum()) for each in images], found.features["f"].pixels is images[0]
"""


@pytest.mark.parametrize("mode", ["default", "pool", "share"])
def test_a_nested_request_arrives(
    mode: Any, pool: gpuwm.Pool, host: gpuwm.Pool, peer: Peer
) -> None:
    original = request()
    tensors = list(original.features["images"])
    wrapped = gpuwm.wrap(original, mode, [pool, host])
    refs = [*wrapped.features["images"], wrapped.features["f"].pixels]
    assert [ref.mode for ref in refs] == [mode] * 4
    assert refs[3] is refs[0]
    assert wrapped.features["f"].grid is None
    assert wrapped.note is original.note
    kept = original.features["images"]
    assert all(a is b for a, b in zip(kept, tensors, strict=True))  # the original is as it was
    peer.run(_SUMS)
    peer.run("found = gpuwm.unwrap(wrapped)", wrapped=wrapped)
    assert peer.run("sums(found)") == ([0, 6, 12], True)
    wanted = "cpu" if mode == "default" else DEVICE
    assert peer.run("found.features['images'][1].device.type") == wanted
    peer.run("found = wrapped = None")
    assert original.features["images"][1].tolist() == [[1.0] * 3] * 2
    del wrapped, refs
    for each in (pool, host):
        eventually(lambda each=each: is_free(each))  # type: ignore[misc]


def test_copies_are_of_one_s_own(pool: gpuwm.Pool, peer: Peer) -> None:
    wrapped = gpuwm.wrap({"x": torch.ones(3)}, "pool", pool)
    peer.run("found = gpuwm.unwrap(wrapped, how='copy')", wrapped=wrapped)
    eventually(lambda: is_free(pool))
    assert peer.run("found['x'].add_(1).tolist()") == [2, 2, 2]
    wrapped = gpuwm.wrap([torch.ones(3)], "pool", pool)
    assert peer.run("gpuwm.unwrap(w, 'cpu')[0].device.type", w=wrapped) == "cpu"


def test_several_readers_get_one_chunk(pool: gpuwm.Pool) -> None:
    wrapped = gpuwm.wrap([torch.ones(3)], "pool", pool, others=2)
    with peers(2) as both:
        for peer in both:
            assert peer.run("gpuwm.unwrap(w, how='copy')[0].tolist()", w=wrapped) == [1, 1, 1]
    eventually(lambda: is_free(pool))


@on_host
def test_arrays_are_wrapped_too(host: gpuwm.Pool, peer: Peer) -> None:
    value = {"a": np.arange(3), "o": np.array([None])}
    wrapped = gpuwm.wrap(value, pool=host)
    assert wrapped["a"].framework == "numpy"
    assert wrapped["o"] is value["o"]
    assert peer.run("gpuwm.unwrap(w)['a'].tolist()", w=wrapped) == [0, 1, 2]


def test_a_shared_tensor_lives_as_long_as_somebody_has_it(daemon: Daemon, peer: Peer) -> None:
    wrapped = gpuwm.wrap([torch.arange(4.0)], "share")
    (ref,) = wrapped
    peer.run("first = gpuwm.unwrap(w)", w=wrapped)
    del wrapped, ref
    gc.collect()
    assert peer.run("first[0].tolist()") == [0, 1, 2, 3]
    peer.run("del first, w")
    eventually(lambda: not any(row["state"] == "ready" for row in _nameless(daemon)))


def _nameless(daemon: Daemon) -> list[Any]:
    return [row for row in daemon.admin.list()["versions"] if row["model"].startswith("~")]


# ---- failures ----------------------------------------------------------------------------------


def test_a_failure_takes_back_what_was_put(pool: gpuwm.Pool) -> None:
    bad = torch.ones(2, 2).to_sparse()
    for k in range(4):
        values: list[Any] = [torch.ones(3) for _ in range(4)]
        values[k] = bad
        with pytest.raises(gpuwm.Unsupported, match=rf"^\['x'\]\[{k}\]: "):
            gpuwm.wrap({"x": values}, "pool", pool)
        eventually(lambda: is_free(pool))


def test_a_pool_that_is_full_is_an_error_or_waited_for(pool: gpuwm.Pool, peer: Peer) -> None:
    half = torch.zeros(ROOM // 2, dtype=torch.uint8)
    first = gpuwm.wrap([half], "pool", pool)
    pair = [half.clone(), half.clone()]
    with pytest.raises(gpuwm.PoolFull, match=f"{ROOM:,} bytes in 2 chunks".replace(",", "")):
        gpuwm.wrap(pair, "pool", pool)
    assert pool.figures().chunks == 1
    with pytest.raises(gpuwm.PoolFull):
        gpuwm.wrap(pair, "pool", pool, wait=0.05)
    assert pool.figures().chunks == 1
    copied = once(
        lambda: pool.figures().waiting == 1,
        lambda: peer.run("gpuwm.unwrap(w, how='copy')", w=first),
    )
    second = gpuwm.wrap(pair, "pool", pool, wait=60)
    copied.join()
    peer.run("gpuwm.unwrap(w, how='copy')", w=second)
    eventually(lambda: is_free(pool))
    with pytest.raises(gpuwm.NoRoom, match="one message"):
        gpuwm.wrap([*pair, half.clone()], "pool", pool, wait=60)
    eventually(lambda: is_free(pool))


@pytest.mark.parametrize("k", range(4))
def test_a_failed_unwrap_gives_all_back(k: int, pool: gpuwm.Pool, peer: Peer) -> None:
    wrapped = gpuwm.wrap([torch.ones(3) for _ in range(4)], "pool", pool)
    peer.run(f"w[{k}].copy()", w=wrapped)  # another reader
    with peers(1) as (late,):
        with pytest.raises(gpuwm.Lost, match=rf"^\[{k}\]: "):
            late.run("gpuwm.unwrap(w)", w=wrapped)
        eventually(lambda: is_free(pool))


def test_errors_of_torch_have_the_place(pool: gpuwm.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("of torch")

    wrapped = gpuwm.wrap({"x": torch.ones(1)}, "pool", pool)
    monkeypatch.setattr(type(wrapped["x"]), "open", fail)
    with pytest.raises(gpuwm.Error, match=r"^\['x'\]: RuntimeError: of torch"):
        gpuwm.unwrap(wrapped)


def test_what_can_not_be_meant(pool: gpuwm.Pool) -> None:
    one = [torch.ones(1)]
    calls: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: gpuwm.wrap(one, "other"), "mode='other'"),  # type: ignore[arg-type]
        (lambda: gpuwm.wrap(one), "needs a pool on host"),
        (lambda: gpuwm.wrap(one, "pool"), "needs a pool on the tensor's device"),
        (lambda: gpuwm.unwrap(one, how="other"), "how='other'"),  # type: ignore[arg-type]
    )
    for call, said in calls:
        with pytest.raises(gpuwm.Invalid, match=said):
            call()
    for more in ({"others": 2}, {"readers": [3]}):
        with pytest.raises(gpuwm.Invalid, match="share"):
            gpuwm.wrap(one, "share", **more)
    with pytest.raises(TypeError, match="pool="):
        gpuwm.wrap(one, pool="features")  # type: ignore[arg-type]
    with pytest.raises(gpuwm.Unsupported, match="torch"):
        gpuwm.wrap([np.ones(1)], "share")
    assert gpuwm.wrap([None, 5, {"x": ()}]) == [None, 5, {"x": ()}]


def test_a_reference_is_small_and_says_what_it_is(pool: gpuwm.Pool) -> None:
    (ref,) = gpuwm.wrap([torch.ones(1000)], "pool", pool)
    again = pickle.loads(pickle.dumps(ref))
    assert len(pickle.dumps(ref)) < 500
    assert (again.mode, again.device, again.source) == ("pool", pool.device, pool.device)
    assert "float32 [1000]" in repr(again)
    ref.release()
