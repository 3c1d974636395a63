"""Records that somebody wrote by hand: `image.module` runs no code for them, changes nothing of the
process, and comes to an end."""

from __future__ import annotations

import collections
import ctypes
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from conftest import by_torch
from image_models import Holder, numbers
from torch import nn

import gpuwm
import gpuwm.image
from gpuwm.image import record

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]

tags = itertools.count(1)
ran: list[str] = []


def __getattr__(name: str) -> Any:
    ran.append(name)
    raise AttributeError(name)


class OwnList(list[int]):
    def __new__(cls, *_: Any) -> OwnList:
        ran.append("list")
        return list.__new__(cls)


class OwnTuple(tuple[int, ...]):
    def __new__(cls, *_: Any) -> OwnTuple:
        ran.append("tuple")
        return tuple.__new__(cls)


class OwnNamed(collections.namedtuple("OwnNamed", "a")):
    def __new__(cls, *_: Any) -> OwnNamed:
        ran.append("named")
        return super().__new__(cls, 1)


class Meta(type):
    def __call__(cls, *arguments: Any) -> Any:
        ran.append("class")
        return super().__call__(*arguments)


class OwnDict(dict[str, int], metaclass=Meta):
    pass


class Base:
    def __init__(self) -> None:
        ran.append("base")


class Mixed(nn.Linear, Base):
    call_super_init = True


class Lazy:
    def __getattr__(self, name: str) -> Any:
        ran.append(name)
        raise AttributeError(name)


lazy = Lazy()


def altered(number: int = 1) -> int:
    return number


def image_of(model: nn.Module, change: Callable[[dict[str, Any]], None]) -> str:
    """The model's image, with another record."""
    name = f"hostile@{next(tags)}"
    mapping = gpuwm.image.publish(model, name, makeable=True)
    content = json.loads(mapping.files[record.FILE])
    change(content)
    files = {record.FILE: json.dumps(content).encode()}
    gpuwm.publish(dict(mapping.state_dict()), f"{name}b", files=files, bind=False)
    return f"{name}b"


def add(content: dict[str, Any], kind: str, said: str, slots: list[Any]) -> dict[str, int]:
    """Adds a node. Returns what refers to it."""
    content["classes"].append(said)
    content["nodes"].append(["x", kind, len(content["classes"]) - 1, slots])
    return {"node": len(content["nodes"]) - 1}


def image_with(kind: str, said: str, slots: list[Any]) -> str:
    """An image whose module has an attribute `held`: this node."""

    def change(content: dict[str, Any]) -> None:
        held = add(content, kind, said, slots)
        content["nodes"][0][3].append(["attribute", "held", held])

    return image_of(Holder(tensor=numbers(2)), change)


def image_holding(held: Any) -> str:
    return image_of(
        Holder(tensor=numbers(2)),
        lambda content: content["nodes"][0][3].append(["attribute", "held", held]),
    )


# ---- code --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "slots"),
    [
        ("tuple", "OwnTuple", [["item", 0, 1]]),
        ("tuple", "OwnNamed", [["item", 0, 1]]),
        ("dict", "OwnDict", [["item", "a", 1]]),
    ],
)
def test_containers_are_made_without_their_code(kind: str, name: str, slots: list[Any]) -> None:
    image = image_with(kind, f"{__name__}.{name}", slots)
    ran.clear()
    found: Any = gpuwm.image.module(image)
    assert ran == []
    assert type(found.held).__name__ == name
    assert list(found.held) == [slots[0][2] if kind == "tuple" else "a"]


def test_lists_that_need_their_code_are_not_made() -> None:
    image = image_with("list", f"{__name__}.OwnList", [["item", 0, 1]])
    ran.clear()
    with pytest.raises(gpuwm.BindError, match="held is a .*OwnList in the version"):
        gpuwm.image.module(image)
    assert ran == []


def test_bases_of_a_module_s_class_have_no_say() -> None:
    model = Mixed(2, 2)
    name = f"hostile@{next(tags)}"
    gpuwm.image.publish(model, name, makeable=True)
    ran.clear()
    found: Any = gpuwm.image.module(name)
    assert ran == []
    assert torch.equal(found.weight, model.weight)


@pytest.mark.parametrize("name", ["lazy.some", "nothing", "nothing.some"])
def test_names_are_looked_up_without_code(name: str) -> None:
    ran.clear()
    for held in ({"other": f"class {__name__}.{name}"}, {"enum": [f"{__name__}.{name}", "A"]}):
        with pytest.raises(gpuwm.BindError, match="held"):
            gpuwm.image.module(image_holding(held))
    assert ran == []


def test_names_load_no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(ctypes.cdll, "_dlltype", loaded.append)
    for held in ({"other": "class ctypes.cdll./x"}, {"enum": ["ctypes.cdll./x", "A"]}):
        with pytest.raises(gpuwm.BindError, match=r"ctypes\.cdll\./x"):
            gpuwm.image.module(image_holding(held))
    assert loaded == []


@pytest.mark.parametrize("default", [True, 1.0])
def test_defaults_of_functions_keep_their_types(default: Any) -> None:
    image = image_with("function", f"{__name__}.altered", [["default", 0, default]])
    with pytest.raises(gpuwm.BindError, match="held is a"):
        gpuwm.image.module(image)
    assert altered.__defaults__ is not None
    assert type(altered.__defaults__[0]) is int


@pytest.mark.parametrize("key", ["_modules", "_parameters", "_forward_hooks"])
def test_what_torch_keeps_for_itself_is_in_no_record(key: str) -> None:
    image = image_of(
        nn.Linear(2, 2), lambda content: content["nodes"][0][3].append(["attribute", key, 1])
    )
    with pytest.raises(gpuwm.Damaged, match="the module has what torch keeps for itself"):
        gpuwm.image.module(image)


# ---- what can't be ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "said", "slots"),
    [
        ("list", "builtins.list", [["item", 5, 1]]),
        ("list", "builtins.list", [["item", "a", 1]]),
        ("tuple", "builtins.tuple", [["item", 0, 1], ["item", 0, 1]]),
        ("dict", "builtins.dict", [["cell", "a", 1]]),
        ("dict", "builtins.dict", [["default", 0, 1]]),
        ("partial", "functools.partial", [["call", "func", 1], ["call", 1, 1]]),
        ("partial", "functools.partial", []),
        ("method", "builtins.method", []),
        ("method", "builtins.method", [["call", "__self__", 1]]),
    ],
)
def test_slots_that_no_such_object_has(kind: str, said: str, slots: list[Any]) -> None:
    with pytest.raises(gpuwm.Damaged, match="x"):
        gpuwm.image.module(image_with(kind, said, slots))


@pytest.mark.parametrize(
    ("kind", "said", "slots"),
    [
        ("dict", "builtins.dict", [["attribute", "a", 1]]),
        ("partial", "functools.partial", [["call", "func", 1]]),
        ("method", "builtins.method", [["call", "__self__", 1], ["call", "__func__", 2]]),
        ("tuple", "time.struct_time", [["item", 0, 1]]),
        ("object", "collections.abc.Mapping", []),
        ("object", "types.FrameType", []),
    ],
)
def test_objects_that_can_not_be_made(kind: str, said: str, slots: list[Any]) -> None:
    with pytest.raises(gpuwm.BindError, match="1 thing differs"):
        gpuwm.image.module(image_with(kind, said, slots))


# ---- ends --------------------------------------------------------------------------------------


def test_objects_that_hold_themselves_or_are_held_twice() -> None:
    ring: dict[str, Any] = {"list": [1]}
    ring["me"] = ring
    name = f"hostile@{next(tags)}"
    model = Holder(tensor=numbers(2), ring=ring, list=ring["list"])
    gpuwm.image.publish(model, name, makeable=True)
    found: Any = gpuwm.image.module(name)
    assert found.ring["me"] is found.ring
    assert found.ring["list"] is found.list
    assert found.list == [1]


def test_tuples_that_hold_each_other_often() -> None:
    def change(content: dict[str, Any]) -> None:
        held: Any = 1
        for _ in range(60):
            held = add(content, "tuple", "builtins.tuple", [["item", 0, held], ["item", 1, held]])
        content["nodes"][0][3].append(["attribute", "held", held])

    found: Any = gpuwm.image.module(image_of(Holder(tensor=numbers(2)), change))
    for _ in range(60):
        found.held = found.held[1]
    assert found.held == 1


def test_tuples_that_are_nested_deeply() -> None:
    def change(content: dict[str, Any]) -> None:
        held: Any = 1
        for _ in range(5000):
            held = add(content, "tuple", "builtins.tuple", [["item", 0, held]])
        content["nodes"][0][3].append(["attribute", "held", held])

    with pytest.raises(gpuwm.Damaged, match="is nested too deeply"):
        gpuwm.image.module(image_of(Holder(tensor=numbers(2)), change))


@pytest.fixture
def usual_depth() -> Iterator[None]:
    """Python's own limit of calls in each other: torch raises it for its compiler."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("usual_depth")
def test_values_that_are_nested_deeply() -> None:
    held: Any = 1
    for _ in range(400):
        held = {"tuple": [held]}
    with pytest.raises(gpuwm.Damaged, match="a value in it is nested too deeply"):
        gpuwm.image.module(image_holding(held))


@pytest.mark.usefixtures("usual_depth")
def test_contents_that_are_nested_deeply() -> None:
    content: Any = 1
    for _ in range(600):
        content = {"": content}
    with pytest.raises(gpuwm.Damaged, match="a value in it is nested too deeply"):
        gpuwm.image.module(
            image_of(Holder(tensor=numbers(2)), lambda record: record.update(contents=content))
        )


@pytest.mark.parametrize(("ways", "deep"), [(2, 60), (1, 20000)])
def test_modules_with_too_many_names(ways: int, deep: int) -> None:
    def change(content: dict[str, Any]) -> None:
        first, said = content["modules"], content["nodes"][0][2]
        nodes = [
            [
                f"m{at}",
                *("module", said),
                [["module", f"c{way}", {"node": first + at + 1}] for way in range(ways)],
            ]
            for at in range(deep)
        ]
        content["nodes"] = content["nodes"][:first] + nodes + [["end", "module", said, []]]
        content["nodes"][0][3].append(["module", "first", {"node": first}])
        content["modules"] += deep + 1

    with pytest.raises(gpuwm.Damaged, match="the names of its modules have .* characters"):
        gpuwm.image.module(image_of(nn.Sequential(nn.Linear(2, 2)), change))


@pytest.mark.parametrize(
    ("ways", "deep", "told"), [(2, 30, r"has \d+ parts"), (1, 5000, "is a part 33 times over")]
)
def test_tensors_of_too_many_parts(ways: int, deep: int, told: str) -> None:
    def change(content: dict[str, Any]) -> None:
        rows, first = content["tensors"], len(content["tensors"])
        for at in range(deep):
            parts = {f"p{way}": first + at + 1 for way in range(ways)}
            rows.append({**rows[0], "names": [f"t{at}"], "parts": parts})
        rows.append({**rows[0], "names": ["end"]})

    with pytest.raises(gpuwm.Damaged, match=told):
        gpuwm.image.module(image_of(nn.Linear(2, 2), change))
