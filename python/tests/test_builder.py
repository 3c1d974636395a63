"""Functions whose results are built once for all processes."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import math
import os
import pickle
import pydoc
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from built import Counted, Net, net
from conftest import DEVICE, Daemon, by_torch, eventually
from torch import nn

import gpuwm
import gpuwm.builders

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]

_models = itertools.count(1)


@pytest.fixture
def model() -> str:
    return f"built-{next(_models)}"


TTL_S_MAX = 30 * 86_400


def test_the_second_call_attaches(model: str) -> None:
    counted = Counted(net)
    build = counted.builder(model=model, key="h{hidden}")
    first: Any = build(8)
    second: Any = build(hidden=8)
    assert counted.calls == 1
    assert type(second) is Net
    assert first is not second
    assert gpuwm.mapping_of(first).version == gpuwm.mapping_of(second).version
    assert str(gpuwm.mapping_of(second).version) == build.key(8) == f"{model}@h8"
    assert first.inner.weight.tolist() == second.inner.weight.tolist()
    assert second.seen.tolist() == [0, 0]
    with pytest.raises(gpuwm.WriteError, match=r"private=\['inner\.weight'\] to .* builder"):
        second.inner.weight.zero_()
    assert build.__name__ == "build"


def test_other_arguments_are_another_result(model: str) -> None:
    counted = Counted(net)
    build = counted.builder(model=model)
    assert build(4).inner.weight.shape != build(6).inner.weight.shape
    build(4, "b")
    build()
    assert counted.calls == 3
    assert [entry.tag.rpartition("-")[0] for entry in build.info()] == [
        "hidden-4-kind-a",
        "hidden-6-kind-a",
        "hidden-4-kind-b",
    ]


@pytest.mark.parametrize(
    "value",
    [
        lambda: torch.arange(4.0),
        lambda: {"a": torch.arange(4.0), "b": [torch.ones(2), (1, "text", None)], 3: torch.ones(1)},
        lambda: [torch.arange(3), {"net": nn.Linear(2, 2)}],
        lambda: (torch.arange(3), 2.5),
    ],
    ids=["tensor", "dict", "list", "tuple"],
)
def test_tensors_and_what_holds_them(model: str, value: Any) -> None:
    with torch.device(DEVICE):
        counted = Counted(lambda _: value())
        build = counted.builder(model=model)
        first, second = build(), build()
    assert counted.calls == 1
    assert type(first) is type(second)
    left, right = torch.utils._pytree.tree_flatten(first), torch.utils._pytree.tree_flatten(second)
    assert left[1] == right[1]
    for a, b in zip(left[0], right[0], strict=True):
        if isinstance(a, torch.Tensor):
            assert torch.equal(a, b)
        elif not isinstance(a, nn.Module):
            assert a == b


@pytest.mark.parametrize("value", [7, "text", None, {1: 2}, {"a": iter([len]), "b": torch.ones(1)}])
def test_what_can_t_be_published(model: str, value: Any, client: gpuwm.Client) -> None:
    build = Counted(lambda _: value).builder(model=model)
    with pytest.raises((gpuwm.Invalid, gpuwm.Unsupported)):
        build()
    assert build.info() == []
    assert client.list(model)["claims"] == []


def test_a_builder_that_raises_is_followed_by_the_next(model: str) -> None:
    values = iter([ValueError("no disk"), torch.ones(2)])

    def make(_: int) -> Any:
        value = next(values)
        if isinstance(value, Exception):
            raise value
        return value

    build = Counted(make).builder(model=model)
    with pytest.raises(ValueError, match="no disk") as error:
        build()
    assert error.value.__context__ is None
    assert build().tolist() == [1, 1]


def test_a_publisher_that_failed_is_followed_by_the_next(model: str, client: gpuwm.Client) -> None:
    def stop(*_: Any) -> None:
        raise ValueError("no more")

    build = Counted(lambda _: torch.ones(2)).builder(model=model)
    with pytest.raises(ValueError, match="no more"):
        gpuwm.image.publish(nn.Linear(2, 2), build.key(), makeable=True, progress=stop)
    assert [each["state"] for each in client.list(model)["versions"]] == ["failed"]
    assert not build.invalidate()
    assert build().tolist() == [1, 1]


def test_it_expires(model: str) -> None:
    counted = Counted(lambda _: torch.ones(1))
    build = counted.builder(model=model, ttl=0.2)
    held = build()
    assert build.info()[0].expires is not None
    eventually(lambda: build.info()[0].state == "retiring")
    build()
    assert counted.calls == 2
    assert held.tolist() == [1], "a time that ends takes nothing away"


def test_the_last_ones_are_kept(model: str) -> None:
    counted = Counted(lambda _: torch.ones(1))
    build = counted.builder(model=model, keep_last=2)
    for hidden in (1, 2, 3):
        build(hidden)
    eventually(lambda: len(build.info()) == 2)
    build(3)
    assert counted.calls == 3


@pytest.mark.parametrize(
    "options",
    [
        *({"ttl": 0}, {"ttl": -1}, {"ttl": TTL_S_MAX + 1}, {"keep_last": 0}, {"keep_last": 1025}),
        *({"mode": "never"}, {"owner": "nobody"}),
    ],
    ids=str,
)
def test_options_that_are_wrong(model: str, options: dict[str, Any]) -> None:
    with pytest.raises(gpuwm.Invalid, match=f"{next(iter(options))}="):
        Counted(net).builder(model=model, **options)


def test_the_longest_time_and_the_most_versions(model: str) -> None:
    build = Counted(net).builder(model=model, ttl=TTL_S_MAX, keep_last=1024)
    build()
    (entry,) = build.info()
    assert entry.made is not None
    assert entry.expires == pytest.approx(entry.made + TTL_S_MAX, abs=1)


@pytest.mark.parametrize("name", ["", "a b", "/a", ".a", "a..b", "a@b", "x" * 129])
def test_names_that_no_model_has(name: str) -> None:
    with pytest.raises(gpuwm.Invalid, match="model="):
        Counted(net).builder(model=name)


def test_options_that_there_are_not() -> None:
    with pytest.raises(TypeError, match="unheard"):
        gpuwm.builder(unheard=1)(net)  # type: ignore[call-overload]


class Partial:
    def __call__(self) -> torch.Tensor:
        return torch.ones(1)


async def awaited() -> torch.Tensor:
    return torch.ones(1)


def yielded() -> Iterator[torch.Tensor]:
    yield torch.ones(1)


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (functools.partial(net, 4), {}, "a partial has no name"),
        (Partial(), {}, "a Partial has no name"),
        (awaited, {}, r"awaited is an async function.*asyncio\.wrap_future"),
        (yielded, {}, "yielded is a generator.*return a list"),
        (torch.ones, {}, "does not know the parameters of .*ones"),
        (staticmethod(net), {}, "write @staticmethod above"),
        (Net, {"code": True}, "code=True: Net is no function"),
        (net, {"mode": "laod"}, "mode='laod'"),
    ],
)
def test_what_can_t_be_decorated(function: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(gpuwm.Invalid, match=said):
        gpuwm.builder(**options)(function)


@pytest.mark.parametrize("options", [{"key": 7}, {"model": 7}], ids=str)
def test_texts_that_are_none(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"=7: give a str"):
        gpuwm.builder(**options)(net)


class Zoo:
    """A class with builders for methods."""

    def __init__(self, name: str) -> None:
        self.name = name

    @gpuwm.builder(key="{self.name}:{size}")
    def pen(self, size: int) -> torch.Tensor:
        """A pen."""
        return torch.full((size,), float(len(self.name)))

    @staticmethod
    @gpuwm.builder
    def fence(size: int) -> torch.Tensor:
        return torch.ones(size)

    @classmethod
    @gpuwm.builder
    def gate(cls, size: int) -> torch.Tensor:
        return torch.ones(size)

    @gpuwm.builder
    def keyless(self) -> torch.Tensor:
        return torch.ones(1)


def test_methods() -> None:
    small, large = Zoo("ape"), Zoo("okapi")
    zoo: Any = Zoo
    assert small.pen(2).tolist() == [3, 3]
    assert large.pen.submit(size=2).result(60).tolist() == [5, 5]
    assert small.pen.key(2) == Zoo.pen.key(small, 2) != large.pen.key(2)
    assert len(small.pen.info()) == 2
    assert small.pen.invalidate(2)
    assert Zoo.fence(2).tolist() == small.fence(2).tolist() == [1, 1]
    assert zoo.gate(2).tolist() == small.gate.submit(2).result(60).tolist() == [1, 1]
    with pytest.raises(gpuwm.Invalid, match=r"self of Zoo.keyless.*key='\{self.attribute\}'"):
        small.keyless()


def test_it_looks_like_the_function() -> None:
    assert repr(Zoo.pen) == "<gpuwm.builder test_builder.Zoo.pen>"
    assert list(inspect.signature(Zoo.pen).parameters) == ["self", "size"]
    told = pydoc.plain(pydoc.render_doc(Zoo.pen))
    assert re.search(r"pen\(self, size.*A pen\.", told, re.DOTALL)
    assert pickle.loads(pickle.dumps(Zoo.pen)) is copy.deepcopy(Zoo.pen) is Zoo.pen


def test_modules_in_a_dict_are_modules(model: str) -> None:
    def make(_: int) -> Any:
        norm = nn.BatchNorm1d(4).to(DEVICE)
        return {
            "net": net(4),
            "value": norm,
            "a.b": [net(2)],
            "": norm,
            "more": (norm, {1: net(2)}),
        }

    build = Counted(make).builder(model=model, private=["net.*"])
    for found in (build(), build()):
        with torch.no_grad():
            found["net"].inner.weight.zero_()
            found["value"](torch.rand(3, 4, device=DEVICE))
        with pytest.raises(gpuwm.WriteError, match=r"more_1_1\.inner\.weight"):
            found["more"][1][1].inner.weight.zero_()
        assert found["more"][0] is found["value"] is found[""]
        assert str(gpuwm.mapping_of(found["a.b"][0]).version) == build.key()


@pytest.mark.parametrize("inside", ["function", "caller"])
def test_inference_mode(model: str, inside: str) -> None:
    """Tensors of inference mode can't get other memory: they are replaced."""

    def make(_: int) -> Any:
        with torch.inference_mode(inside == "function" or torch.is_inference_mode_enabled()):
            table = torch.arange(4.0)
            return {"table": table, "same": table, "net": net(4)}

    build = Counted(make).builder(model=model)
    with torch.inference_mode(inside == "caller"):
        first, second = build(), build()
    for found in (first, second):
        assert found["table"] is found["same"]
        assert found["table"].view(2, 2).sum() == 6
        x = torch.ones(1, 4, requires_grad=True)
        found["net"](x).sum().backward()
        assert x.grad is not None
        assert str(found["table"]) == "SharedTensor([0., 1., 2., 3.])"


def test_models_of_transformers_in_a_dict(model: str) -> None:
    config = transformers.BertConfig(
        vocab_size=16,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
    )

    def make(_: int) -> Any:
        bert: Any = transformers.BertModel(config)
        bert.eval()
        return {"bert": bert, "both": [bert, nn.Linear(2, 2)], "labels": ("a", "b")}

    build = Counted(make).builder(model=model)
    first, second = build(), build()
    assert second["bert"] is second["both"][0] is not first["bert"]
    assert second["labels"] == ("a", "b")
    ids = torch.tensor([[1, 2]])
    left, right = (each["bert"](ids).last_hidden_state for each in (first, second))
    assert torch.equal(left, right)
    assert torch.equal(first["both"][1].weight, second["both"][1].weight)


def test_hooks_are_refused(model: str) -> None:
    """They compute a part of the result, and would be missing where it is attached."""

    def hooked(_: int) -> Net:
        made = net(4)
        made.inner.register_forward_hook(lambda *_: None)
        return made

    with pytest.raises(gpuwm.Unsupported, match="hook: inner has a forward hook"):
        Counted(hooked).builder(model=model)()


def test_modes(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build = Counted(lambda _: torch.ones(1)).builder(model=model)
    monkeypatch.setenv("GPUWM_MODE", "laod")
    with pytest.raises(gpuwm.Invalid, match='GPUWM_MODE=\'laod\': give "save", "load"'):
        build()
    monkeypatch.setenv("GPUWM_MODE", "load")
    with pytest.raises(gpuwm.NotFound):
        build()
    monkeypatch.setenv("GPUWM_MODE", "save")
    build()
    with pytest.raises(gpuwm.Exists):
        build()
    monkeypatch.setenv("GPUWM_MODE", "load")
    assert build().tolist() == [1]


def test_recursion(model: str) -> None:
    def fall(depth: int = 1) -> Any:
        return other(depth)

    def back(depth: int) -> Any:
        return build(depth)

    build = gpuwm.builder(model=model)(fall)
    other = gpuwm.builder(model=f"{model}-other")(back)
    with pytest.raises(gpuwm.Invalid, match=rf"needs its own result: {model}@.* → .* → {model}@"):
        build()
    with pytest.raises(gpuwm.Invalid, match="needs its own result"):
        build.submit().result(60)


def test_a_builder_may_use_another(model: str) -> None:
    inner = Counted(lambda _: torch.ones(3, device=DEVICE)).builder(model=f"{model}-inner")
    outer = Counted(lambda _: {"twice": inner() * 2, "same": inner()}).builder(model=model)
    outer()
    found = outer()
    assert (found["twice"].tolist(), found["same"].tolist()) == ([2, 2, 2], [1, 1, 1])


def test_submit(model: str) -> None:
    go, phases = threading.Event(), []

    def make(_: int) -> Any:
        phases.append(future.progress.phase)
        go.wait(60)
        return torch.ones(1000)

    counted = Counted(make)
    build = counted.builder(model=model)
    future = build.submit()
    eventually(lambda: phases)  # it is elected, and the next one waits
    waiting = build.submit()
    eventually(lambda: waiting.progress.phase == "waiting")
    assert not waiting.done()
    go.set()
    assert future.result(60).sum() == waiting.result(60).sum() == 1000
    assert phases == ["building"]
    assert counted.calls == 1
    assert future.progress.phase == "done"


def test_a_submitted_call_that_raises(model: str) -> None:
    def make(_: int) -> Any:
        raise ValueError("no disk")

    with pytest.raises(ValueError, match="no disk"):
        Counted(make).builder(model=model).submit().result(60)


def test_structure_for_what_no_record_describes(model: str) -> None:
    made: list[str] = []

    class Local(nn.Linear):
        pass

    def whole(size: int) -> nn.Module:
        made.append("whole")
        return Local(size, size)

    with pytest.raises(gpuwm.Unsupported, match="Local, which another process could not") as error:
        gpuwm.builder(model=model)(whole)(2)
    assert "structure= of a builder" in error.value.detail

    def shell(size: int) -> nn.Module:
        made.append("shell")
        return Local(size, size)

    build = gpuwm.builder(model=model, structure=shell)(whole)
    first: Any = build(2)
    second: Any = build(2)
    assert made == ["whole", "whole", "shell"]
    assert torch.equal(first.weight, second.weight)


def test_another_user_s_result_is_refused(model: str) -> None:
    build = Counted(lambda _: torch.ones(1)).builder(model=model)
    build()
    other = Counted(lambda _: torch.ones(1)).builder(model=model, owner=os.geteuid() + 1)
    with pytest.raises(gpuwm.Refused):
        other()


def test_a_name_that_somebody_else_took_for_another_key(model: str) -> None:
    build = Counted(lambda _: torch.ones(1)).builder(model=model, key="same")
    gpuwm.publish({"x": torch.ones(1)}, build.key())
    with pytest.raises(gpuwm.Mismatch):
        build()


def test_quota_of_versions() -> None:
    from conftest import running

    with running("--set", "limits.versions_per_uid=1"):
        build = Counted(lambda _: torch.ones(1)).builder(model="m")
        build(1)
        with pytest.raises(gpuwm.Quota, match="versions"):
            build(2)
        build.invalidate(1)
        eventually(lambda: build.info() == [])
        assert build(2).tolist() == [1]


def test_an_endless_time_is_the_default(model: str) -> None:
    build = Counted(lambda _: torch.ones(1)).builder(model=model, ttl=math.inf)
    build()
    assert build.info()[0].expires is None


def test_it_becomes_no_current(daemon: Daemon, model: str, client: gpuwm.Client) -> None:
    Counted(lambda _: torch.ones(1)).builder(model=model)()
    assert client.list(model)["aliases"] == []
