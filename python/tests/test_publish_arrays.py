"""gpuwm.publish of NumPy arrays, without torch, to host or a GPU; and of several parts."""

from __future__ import annotations

import itertools
import queue
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conftest import Daemon, eventually, run_python, running

import gpuwm
from gpuwm._publish import making

_count = itertools.count()


@pytest.fixture
def name() -> str:
    return f"arrays@v{next(_count)}"


def state(daemon: Daemon, name: str) -> str | None:
    model, _, tag = name.partition("@")
    rows = [row for row in daemon.admin.list(model)["versions"] if row["tag"] == tag]
    return str(rows[0]["state"]) if rows else None


def test_arrays(daemon: Daemon, name: str) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    arrays = {
        "plain": base,
        "same": base,
        "gaps": base[:, ::2],
        "turned": base.T,
        "half": base.astype(np.float16),
        "yes": np.array([True, False]),
        "scalar": np.array(3, dtype=np.int64),
        "empty": np.empty((0, 3), dtype=np.uint8),
    }
    with gpuwm.publish(arrays, name, device=daemon.device) as mapping:
        assert mapping.device == daemon.device
        for key, array in arrays.items():
            assert mapping[key].shape == array.shape
            assert mapping[key].tobytes() == array.tobytes(), key
        infos = {info.name: info for info in mapping.infos()}
        assert infos["same"].tied == "plain"
        assert mapping.nbytes == sum(a.nbytes for k, a in arrays.items() if k != "same")
    assert arrays["plain"] is base  # arrays stay what they are


def test_arrays_that_are_refused(daemon: Daemon, name: str) -> None:
    refused: dict[str, Any] = {
        "swapped": np.arange(3, dtype=">i4"),
        "objects": np.array([None]),
        "long": np.zeros(2, dtype=np.complex128),
        "fields": np.zeros(2, dtype=[("a", "i4")]),
        "text": np.array(["a"]),
        "expanded": np.broadcast_to(np.float32(1), (1000,)),
        "list": [1, 2],
    }
    with pytest.raises(gpuwm.Unsupported) as raised:
        gpuwm.publish(refused, name)
    assert all(f"\n  {key}: " in str(raised.value) for key in refused)
    assert "4000 bytes" in str(raised.value)
    assert state(daemon, name) is None


def test_torch_is_not_imported(daemon: Daemon, name: str) -> None:
    run_python(
        "import sys, gpuwm, numpy\n"
        "gpuwm.publish({'w': numpy.arange(8)}, sys.argv[1])\n"
        "assert 'torch' not in sys.modules\n",
        name,
    )


def test_files_and_texts_that_can_not_be(daemon: Daemon, name: str) -> None:
    arrays = {"w": np.arange(8)}
    with pytest.raises(FileNotFoundError):
        gpuwm.publish(arrays, name, files=["/nowhere/config.json"])
    with pytest.raises(gpuwm.Invalid, match=r"key\."):
        gpuwm.publish(arrays, name, metadata={"key.dtype": "x"})
    with pytest.raises(gpuwm.Invalid):
        gpuwm.publish(arrays, "no-tag")
    with pytest.raises(gpuwm.Error):
        gpuwm.publish(arrays, name, device="GPU-none")
    assert state(daemon, name) in (None, "failed")
    gpuwm.publish(arrays, name, files={"config.json": b"{}"}, bind=False)
    assert gpuwm.attach(name).files["config.json"] == b"{}"


@pytest.mark.parametrize("bind", [True, False])
def test_what_a_commit_has_to_tell_is_a_warning(
    daemon: Daemon, name: str, monkeypatch: pytest.MonkeyPatch, bind: bool
) -> None:
    monkeypatch.setattr(making, "_said", lambda result: "the alias could not be moved")
    with pytest.warns(RuntimeWarning, match="alias"):
        gpuwm.publish({"w": np.arange(8)}, name, bind=bind)  # type: ignore[call-overload]
    assert state(daemon, name) == "ready"


def test_segments_grow_with_what_is_published() -> None:
    from gpuwm._publish.making import SEGMENT_BYTES, Spec, _segment_bytes

    assert _segment_bytes([Spec("w", "U8", (1,))]) == SEGMENT_BYTES
    large = [Spec(str(i), "U8", (SEGMENT_BYTES // 2 + 1,)) for i in range(1000)]
    # None fits beside another; each that is alone in its piece leaves half of it empty.
    step = _segment_bytes(large)
    assert step % (2 << 20) == 0
    assert 1000 / (step // (SEGMENT_BYTES // 2 + 1)) <= 252


# ---- parts -------------------------------------------------------------------------------------

PART = """
import sys, gpuwm, numpy
name, rank, fails = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
def announce(publish):
    print(publish, flush=True)
    if not sys.stdin.readline():
        raise SystemExit
mapping = gpuwm.publish({"w": numpy.full(4, rank)}, name, rank=rank, world=2,
                        join=sys.stdin.readline().strip() if rank else None, announce=announce)
assert mapping.version.rank == rank and mapping.version.world == 2
assert mapping["w"].tobytes() == numpy.full(4, rank).tobytes()
print("ready", flush=True)
"""


def _part(name: str, rank: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PART, name, str(rank)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _begun(name: str) -> list[subprocess.Popen[str]]:
    """Both parts have begun, and wait for a line."""
    parts = [_part(name, 0), _part(name, 1)]
    for part, following in zip(parts, [parts[1], None], strict=True):
        assert part.stdout is not None
        publish = part.stdout.readline()
        assert len(publish.strip()) == 32
        if following is not None:
            assert following.stdin is not None
            following.stdin.write(publish)
            following.stdin.flush()
    return parts


def test_parts_of_one_version(daemon: Daemon, name: str) -> None:
    parts = _begun(name)
    assert state(daemon, name) != "ready"
    for part in parts:
        assert part.stdin is not None
        part.stdin.write("\n")
        part.stdin.flush()
    for part in parts:
        assert part.communicate(timeout=60) == ("ready\n", "")
    assert gpuwm.attach(name, rank=1)["w"].tobytes() == np.full(4, 1).tobytes()


def _copies(name: str, rank: int, **options: Any) -> gpuwm.Version:
    tensors = {"w": np.full(4, rank)}
    return gpuwm.publish(tensors, name, rank=rank, world=2, bind=False, **options)


def _first(name: str, **options: Any) -> tuple[Future[gpuwm.Version], str]:
    """The first of two parts, in a thread, with a connection of its own; and its publish."""
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    pool = ThreadPoolExecutor(1)
    first = pool.submit(_copies, name, 0, announce=told.put, **options)
    pool.shutdown(wait=False)
    return first, told.get(timeout=60)


def _committed(daemon: Daemon, name: str) -> bool:
    rows = daemon.admin.list(name.partition("@")[0])["versions"]
    parts = next(row for row in rows if row["tag"] == name.partition("@")[2])["parts"]
    return bool(parts[0]["state"] == "ready")


def test_a_copied_part_waits_for_the_others(daemon: Daemon, name: str) -> None:
    """Its connection stays open: the others may begin long after its commit."""
    first, publish = _first(name)
    eventually(lambda: _committed(daemon, name))
    assert not first.done()
    last = _copies(name, 1, join=publish)
    assert first.result(60).id == last.id
    assert state(daemon, name) == "ready"
    assert gpuwm.attach(name, rank=1)["w"].tobytes() == np.full(4, 1).tobytes()


def test_a_copied_part_fails_with_the_others(daemon: Daemon, name: str) -> None:
    first, publish = _first(name)
    eventually(lambda: _committed(daemon, name))

    def give_up(_: str) -> None:
        raise gpuwm.Cancelled("the test wants it")

    with pytest.raises(gpuwm.Cancelled, match="the test wants it"):
        _copies(name, 1, join=publish, announce=give_up)
    with pytest.raises(gpuwm.Cancelled, match="the test wants it"):
        first.result(60)
    assert state(daemon, name) in (None, "failed")


def test_a_copied_part_need_not_wait(daemon: Daemon, name: str) -> None:
    """One thread makes all parts."""
    publish: list[str] = []
    with pytest.raises(gpuwm.Invalid, match=r"wait=None without client=.*client=gpuwm.connect"):
        _copies(name, 0, announce=publish.append, wait=None)
    assert not publish
    client = gpuwm.connect()
    for rank, options in ((0, {"announce": publish.append}), (1, {})):
        join = publish[0] if rank else None
        _copies(name, rank, join=join, wait=None, client=client, **options)
    assert state(daemon, name) == "ready"


def test_a_copied_part_waits_no_longer_than_it_is_told(daemon: Daemon, name: str) -> None:
    publish: list[str] = []
    client = gpuwm.connect()
    with pytest.raises(gpuwm.TimedOut):
        _copies(name, 0, announce=publish.append, wait=0.05, client=client)
    _copies(name, 1, join=publish[0])
    assert state(daemon, name) == "ready"


def test_one_part_dies_and_all_fail(daemon: Daemon, name: str) -> None:
    parts = _begun(name)
    parts[1].kill()
    parts[1].communicate()
    eventually(lambda: state(daemon, name) in (None, "failed"))
    out, error = parts[0].communicate("\n", timeout=60)
    assert out == ""
    assert "gpuwm.errors.Cancelled" in error
    with pytest.raises(gpuwm.Error):
        gpuwm.attach(name)


# ---- a quota ------------------------------------------------------------------------------------


def test_it_waits_for_what_the_grace_time_keeps() -> None:
    arrays = {"a": np.ones(4, np.float32)}
    limits = ("--set", "limits.fds_per_uid=3", "--set", "limits.grace_ms=60000")
    with running(*limits, keeper=True) as daemon, ThreadPoolExecutor(1) as pool:
        gpuwm.publish(arrays, "m@v1", bind=False)
        daemon.restart()
        daemon.admin.remove_alias("m", "current")
        daemon.admin.retire("m@v1")
        for wait in (None, 0.1):
            with pytest.raises(gpuwm.Quota, match="which gives 2 descriptors in the store back"):
                gpuwm.publish(arrays, "m@v2", bind=False, wait=wait)
        second = pool.submit(gpuwm.publish, arrays, "m@v2", bind=False, wait=60)
        eventually(lambda: daemon.admin.status()["waiting"] == 1)
        daemon.admin.retire("m@v1", force=True)
        assert second.result().tag == "v2"
