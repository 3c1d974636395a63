"""Arguments of a wrong type, or with a value that can't be meant: told by their names."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Daemon

import gpuwm

Call = Callable[..., Any]


def with_others(function: Call, **others: Any) -> Call:
    """A call that succeeds up to the one argument that is given."""

    def call(**given: Any) -> Any:
        return function(**others | given)

    return call


def operate(method: str, **others: Any) -> Call:
    return lambda **given: getattr(gpuwm.connect(admin=True), method)(**others | given)


attach = with_others(gpuwm.attach, ref="m@v1")
publish = with_others(gpuwm.publish, source={"w": np.ones(2)}, name="p@v1")
obtain = with_others(gpuwm.obtain, ref="p@v1", make=dict)
load = operate("load", source="/x", name="m@v9")
swap = operate("swap", model="m", to="v1")
pin = operate("pin", ref="m@v1", name="x")
wait_job = operate("wait_job", job=1)


@pytest.fixture(autouse=True)
def version(daemon: Daemon) -> None:
    if not daemon.admin.list("m")["versions"]:
        daemon.load("m@v1", {"a": np.ones(4, np.float32)}, {"config.json": b"{}"})


def with_torch(name: str) -> Call:
    """A function of the package that needs torch."""

    def call(**given: Any) -> Any:
        pytest.importorskip("torch")
        return getattr(gpuwm, name)(**given)

    return call


def of_pool(method: str, **others: Any) -> Call:
    """Of a pool that is gone afterwards."""

    def call(**given: Any) -> Any:
        with gpuwm.Pool(1 << 21) as pool:
            return getattr(pool, method)(**others | given)

    return call


builder = with_torch("builder")
mapping_of = with_torch("mapping_of")
share = with_others(gpuwm.share)
handles = with_others(gpuwm.handles, ref="m@v1")
wrap = with_others(gpuwm.wrap, obj=[])
unwrap = with_others(gpuwm.unwrap, obj=[])
create_pool = with_others(gpuwm.Pool, nbytes=1 << 21)
create_queue = with_others(gpuwm.Queue, maxsize=4)
blocks = with_others(gpuwm.Blocks.open_or_create, name="kv", blocks=4, block_bytes=256)
scratch = with_others(gpuwm.Scratch.create, name=None, bytes=1 << 21)
put = of_pool("put", tensor=np.ones(2))
empty = of_pool("empty", shape=(2,), dtype="float32")

NO_TEXT = (None, 5, b"m@v1", pathlib.Path("m"), ["m"])
NO_COUNT = (None, 1.5, "1", [1])
NO_WAIT = ("1", [1], object())
NO_KEY = (5, "x", ["dtype"], {5: "x"})
NO_OWNER = (1.5, b"operator", [None], object())
NO_CHOICE = (5, b"x", ["x"], object())
NO_TENSOR = (None, 5, [1.0])
OF_TYPES: list[tuple[Call, str, tuple[Any, ...]]] = [
    (attach, "ref", NO_TEXT),
    (attach, "rank", NO_COUNT),
    (attach, "wait", NO_WAIT),
    (attach, "layers", (5, "x", "1", [None])),
    (attach, "glob", (5, [None], b"a")),
    (attach, "device", (1.5, ["host"], object())),
    (attach, "client", ("/run/gpuwm/gpuwm.sock", 5)),
    (attach, "key", NO_KEY),
    (attach, "owner", NO_OWNER),
    (attach, "writes", NO_CHOICE),
    (attach, "transport", NO_CHOICE),
    (handles, "key", NO_KEY),
    (handles, "transport", NO_CHOICE),
    (gpuwm.connect, "socket", (5, ["x"])),
    (gpuwm.connect, "name", (5, b"x")),
    (gpuwm.connect, "wait", NO_WAIT),
    (gpuwm.connect, "timeout", NO_WAIT),
    (gpuwm.connect, "restart", NO_WAIT),
    (gpuwm.events, "client", ("x",)),
    (operate("list"), "model", (5, b"m")),
    (operate("jobs"), "job", ("1", 1.5)),
    (operate("rollback", model="m"), "alias", NO_TEXT),
    (wait_job, "job", NO_COUNT),
    (wait_job, "wait", NO_WAIT),
    (load, "source", (5,)),
    (load, "devices", (5, [None])),
    (load, "alias", (5,)),
    (load, "key", NO_KEY),
    (load, "files", (5, "x", ["x"])),
    (swap, "model", NO_TEXT),
    (swap, "to", NO_TEXT[1:]),
    (swap, "expect", NO_TEXT[1:]),
    (pin, "ref", NO_TEXT),
    (pin, "name", NO_TEXT),
    (publish, "source", (None, 5, "x")),
    (publish, "name", NO_TEXT[1:]),
    (publish, "rank", NO_COUNT),
    (publish, "world", NO_COUNT),
    (publish, "join", NO_TEXT[1:]),
    (publish, "alias", NO_TEXT[1:]),
    (publish, "files", (5, [5], {"config.json": "text"}, {5: b""})),
    (publish, "metadata", (5, "x", {"by": 5}, {5: "x"})),
    (publish, "announce", (5,)),
    (publish, "progress", (5,)),
    (publish, "client", ("x",)),
    (publish, "key", NO_KEY),
    (publish, "owner", NO_OWNER),
    (publish, "private", (5, [5])),
    (with_others(publish, bind=False), "dtype", (5, ["bfloat16"])),
    (with_others(publish, bind=False), "wait", NO_WAIT),
    (share, "tensor", NO_TENSOR),
    (obtain, "make", (None, {})),
    (obtain, "client", ("x",)),
    (obtain, "key", NO_KEY),
    (obtain, "mode", NO_CHOICE),
    (obtain, "wait", NO_WAIT),
    (builder, "mode", NO_CHOICE),
    (builder, "client", ("x",)),
    (builder, "device", (1.5,)),
    (builder, "wait", NO_WAIT),
    (mapping_of, "model", NO_TENSOR),
    (wrap, "mode", NO_CHOICE),
    (wrap, "pool", (5,)),
    (unwrap, "how", NO_CHOICE),
    (create_pool, "writers", NO_CHOICE),
    (create_pool, "owner", NO_CHOICE),
    (create_pool, "chunks", ("1", 1.5)),
    (create_pool, "ttl", NO_WAIT),
    (create_queue, "owner", NO_CHOICE),
    (create_queue, "maxsize", NO_COUNT),
    (put, "tensor", NO_TENSOR),
    (put, "mode", NO_CHOICE),
    (put, "wait", NO_WAIT),
    (empty, "dtype", (5, ["float32"])),
    (empty, "wait", NO_WAIT),
    (blocks, "blocks", NO_COUNT),
    (blocks, "block_bytes", NO_COUNT),
    (scratch, "bytes", NO_COUNT),
]


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [(call, name, value) for call, name, values in OF_TYPES for value in values],
)
def test_of_a_wrong_type(call: Call, name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{name}\b.*=.*: give "):
        call(**{name: value})
    assert gpuwm.connect().status()["publishes"] == 0


OFFLINE = (attach, publish, obtain, gpuwm.connect, gpuwm.events)


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [(call, name, v) for call, name, values in OF_TYPES if call in OFFLINE for v in values],
)
def test_it_is_told_where_no_gpuwmd_listens(
    monkeypatch: pytest.MonkeyPatch, call: Call, name: str, value: Any
) -> None:
    monkeypatch.setenv("GPUWM_SOCKET", "/nonexistent/gpuwm.sock")
    with pytest.raises(TypeError, match=rf"^{name}\b.*=.*: give "):
        call(**{name: value})


def test_what_names_a_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWM_SOCKET", "/nonexistent/gpuwm.sock")
    wanted = '^ref=3: give a str: "model", "model@tag", "model@alias" or a version id$'
    number: Any = 3
    for call in (gpuwm.attach, lambda ref: gpuwm.obtain(ref, dict)):
        with pytest.raises(TypeError, match=wanted):
            call(number)


OF_VALUES: list[tuple[Call, str, tuple[Any, ...]]] = [
    (attach, "ref", ("a\0b", "\ud800")),
    (attach, "rank", (-1, 2**32, 2**70)),
    (attach, "wait", (-1, math.nan)),
    (attach, "layers", ([-1],)),
    (gpuwm.connect, "socket", ("a\0b", "\ud800")),
    (operate("cancel"), "job", (-1, 2**64)),
    (publish, "rank", (-1, 2**32)),
    (publish, "world", (-1, 2**32)),
    (publish, "metadata", ({"by": "a\0b"},)),
]


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [(call, name, value) for call, name, values in OF_VALUES for value in values],
)
def test_that_can_not_be_meant(call: Call, name: str, value: Any) -> None:
    with pytest.raises(gpuwm.Invalid, match=rf"^{name}\b.*="):
        call(**{name: value})


def test_events_begin_behind_a_number() -> None:
    for after in ("1", 1.5):
        with pytest.raises(TypeError, match="^after="):
            gpuwm.events(after).next(0)  # type: ignore[arg-type]
    for number in (-1, 2**64 - 1):
        with pytest.raises(gpuwm.Invalid, match="^after="):
            gpuwm.events(number).next(0)


def test_names_of_a_mapping() -> None:
    w = gpuwm.attach("m@v1")
    name: Any
    for name in (None, 0, b"a", ["a"]):
        with pytest.raises(TypeError, match=r"^name=.*keys\(\)"):
            w[name]
        assert name not in w
        with pytest.raises(KeyError):
            w.files[name]
        assert name not in w.files
    assert "a\0b" not in w.files
    assert "\ud800" not in w.files
    with pytest.raises(TypeError, match="^stale="):
        w.switch(stale=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="^wait="):
        w.switch(wait="5")  # type: ignore[arg-type]


def test_what_makes_a_model() -> None:
    nn = pytest.importorskip("torch").nn
    make: Any
    for make in (None, nn.Linear(1, 1)):
        with pytest.raises(TypeError, match=r"^make=.*lambda: Model\(config\)"):
            gpuwm.build("m@v1", make)
    with pytest.raises(TypeError, match="^fill="):
        gpuwm.build("m@v1", nn.Module, fill=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="^private="):
        gpuwm.attach("m@v1").bind(nn.Linear(1, 1), private=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="^tensor="):
        gpuwm.ref(None)  # type: ignore[arg-type]


def test_one_file_and_bytes_of_any_kind(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_bytes(b"{}")
    files: Any = str(tmp_path / "config.json")
    publish(name="one@v1", files=files, client=daemon.admin)
    assert dict(gpuwm.attach("one@v1").files) == {"config.json": b"{}"}
    publish(name="one@v2", files={"a": bytearray(b"1"), "b": memoryview(b"2")})
    assert dict(gpuwm.attach("one@v2").files) == {"a": b"1", "b": b"2"}


def test_numbers_of_other_packages() -> None:
    assert len(attach(rank=np.int64(0), wait=np.float32(1))) == 1
