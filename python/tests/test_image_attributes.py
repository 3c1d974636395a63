"""Attributes of tensors: an image has tensors, plain values and objects made of them there, and
refuses others."""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import json
import re
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import DEVICE, by_torch
from image_models import Holder, Kernel, installed, numbers
from test_image_tensors import Halves, halves
from torch import nn

import gpuwm
import gpuwm.image
from gpuwm.image import record

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]
tags = itertools.count(1)


class State:
    """As bitsandbytes hangs it on the weights that it has quantised."""

    def __init__(self, absmax: Any) -> None:
        self.absmax = absmax

    def load(self) -> None:
        pass


class Slotted(nn.Parameter):
    __slots__ = ("state", "unset")


def parameter(**attributes: Any) -> Any:
    made = nn.Parameter(numbers(2, 2), requires_grad=False)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def stateful(value: float = 2.0) -> Any:
    return parameter(state=State(torch.full((2,), value)))


def with_buffer() -> Any:
    model: Any = Holder()
    model.register_buffer("table", numbers(2))
    model.table.state = State(numbers(2))
    return model


def with_slots() -> nn.Module:
    weight: Any = Slotted(numbers(2))
    weight.state = State(numbers(2))
    return Holder(weight=weight)


def on_the_module_too() -> nn.Module:
    state = State(numbers(2))
    return Holder(weight=parameter(state=state), state=state)


def of_the_module_itself() -> Any:
    model: Any = Holder(weight=parameter())
    model.weight.state = model
    return model


def on_a_subclass() -> nn.Module:
    weight: Any = halves()
    weight.state = State(numbers(2))
    return Holder(weight=weight)


def on_a_part() -> nn.Module:
    weight: Any = halves()
    weight.low.state = State(numbers(2))
    return Holder(weight=weight)


def quantised(held: Any) -> nn.Module:
    return Holder(weight=parameter(state=held, width=3, scale=numbers(2)))


CARRIED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "of a parameter": (lambda: nn.Sequential(Holder(weight=stateful())), "0.weight.state"),
    "of a buffer": (with_buffer, "table.state"),
    "of an attribute": (
        lambda: Holder(scale=stateful().data, held=[(1, stateful())]),
        "held[0][1].state",
    ),
    "of a tensor in an object": (
        lambda: Holder(kernel=Kernel(stateful(), 1)),
        "kernel.scale.state",
    ),
    "of a tensor of a tensor": (
        lambda: Holder(weight=parameter(scale=stateful())),
        "weight.scale.state",
    ),
    "of the module too": (on_the_module_too, "weight.state"),
    "in a slot": (with_slots, "weight.state"),
    "of a subclass that flattens": (on_a_subclass, "weight.state"),
    "of a part of a subclass": (on_a_part, "weight.low.state"),
    "a list": (lambda: quantised([State(numbers(2))]), "weight.state"),
    "a dict": (lambda: quantised({"a": [numbers(2)], 3: True}), "weight.state"),
    "a tuple": (lambda: quantised((1, State(numbers(2)))), "weight.state"),
    "a set": (lambda: quantised({1, "a"}), "weight.state"),
    "bytes": (lambda: quantised(State(b"\0\1")), "weight.state"),
    "a namespace": (
        lambda: quantised(State(types.SimpleNamespace(bits=4, scale=numbers(2)))),
        "weight.state",
    ),
    "states in each other": (lambda: quantised(State(State(numbers(2)))), "weight.state"),
    "the module": (of_the_module_itself, "weight.state"),
    "a device": (lambda: quantised(State(torch.device(DEVICE))), "weight.state"),
}


def without(model: Any, path: str) -> Any:
    """The module as before somebody hung the object on its tensor."""
    owner, _, name = path.rpartition(".")
    delattr(reached(model, owner), name)
    return model


def emptied(model: Any, path: str) -> Any:
    """The module with the same object, whose tensors and values are others."""
    held = reached(model, path)
    if isinstance(held, State):
        held.absmax = None
    return model


@pytest.mark.parametrize("kind", CARRIED)
@pytest.mark.parametrize("fresh", [without, emptied])
def test_an_object_on_a_tensor_is_made_again(
    kind: str, fresh: Callable[[Any, str], nn.Module]
) -> None:
    make, path = CARRIED[kind]
    model, name = make(), f"carried@v{next(tags)}"
    gpuwm.image.publish(model, name)
    other = fresh(make(), path)
    gpuwm.image.install(other, name)
    assert gpuwm.image.differences(model, other) == []
    for each in (model, other):
        held = reached(each, path)
        if kind == "of the module too":
            assert held is reached(each, "state")
        if kind == "the module":
            assert held is each
    gpuwm.image.publish(make(), f"makeable-{name}", makeable=True)
    made = gpuwm.image.module(f"makeable-{name}")
    assert gpuwm.image.differences(model, made) == []


def test_one_object_of_two_tensors_stays_one() -> None:
    """As a rotation that experts share; in the fresh module each has its own."""

    def make(*states: State) -> Any:
        return Holder(one=parameter(state=states[0]), two=parameter(state=states[-1]))

    def state() -> State:
        return State(numbers(2))

    fresh = make(state(), state())
    installed(make(state()), fresh)
    assert fresh.one.state is fresh.two.state
    shared = make(state())
    installed(make(State(numbers(2)), State(numbers(2) + 1)), shared)
    assert shared.one.state is not shared.two.state
    assert torch.equal(shared.two.state.absmax, numbers(2) + 1)
    assert torch.equal(shared.one.state.absmax, numbers(2))


class Other:
    """Not a State."""


def test_an_object_of_another_class_is_refused() -> None:
    gpuwm.image.publish(Holder(weight=stateful()), "another@v1")
    fresh: Any = Holder(weight=parameter(state=Other()))
    with pytest.raises(gpuwm.BindError, match=r"object: weight.state is a .*State in the version"):
        gpuwm.image.install(fresh, "another@v1")
    del fresh.weight.state  # the remedy: a module that has none
    gpuwm.image.install(fresh, "another@v1")
    assert torch.equal(fresh.weight.state.absmax, torch.full((2,), 2.0))


class Counted:
    """Objects of it are made with an argument."""

    def __new__(cls, count: int) -> Counted:
        return super().__new__(cls)


def local() -> Any:
    class Local:
        pass

    return Local()


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a method": (lambda: quantised(State(numbers(2)).load), "weight.state: a method, which hangs"),
    "a function": (
        lambda: quantised(numbers),
        "weight.state: a function (image_models.numbers), which hangs on a parameter",
    ),
    "a partial": (
        lambda: quantised(functools.partial(numbers, 2)),
        "weight.state: a partial (functools.partial), which hangs on a parameter",
    ),
    "a class": (lambda: quantised(State), "weight.state: a type (test_image_attributes.State)"),
    "a function in an object": (
        lambda: nn.Sequential(quantised(State(numbers))),
        "0.weight.state.absmax: a function (image_models.numbers), which hangs on a parameter",
    ),
    "a thread in a list": (
        lambda: quantised([1, [threading.Lock()]]),
        "weight.state[1][0]: a lock (_thread.lock), which hangs",
    ),
    "what needs arguments": (
        lambda: quantised({"a": Counted(1)}),
        "weight.state['a']: a Counted (test_image_attributes.Counted), which hangs",
    ),
    "of a local class": (
        lambda: quantised(State(local())),
        "weight.state.absmax: a Local (test_image_attributes.local.<locals>.Local), which hangs",
    ),
    "a module of its own": (
        lambda: quantised(State(nn.Linear(1, 1))),
        "weight.state.absmax: a Linear (torch.nn.modules.linear.Linear), which hangs",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("makeable", [False, True])
def test_another_object_on_a_tensor_is_refused(kind: str, makeable: bool) -> None:
    make, expected = REFUSED[kind]
    name = f"objects@v{next(tags)}"
    with pytest.raises(gpuwm.Unsupported) as error:
        gpuwm.image.publish(make(), name, makeable=makeable)
    assert f"nothing was published:\n  {expected}" in str(error.value)
    with pytest.raises(gpuwm.NotFound):
        gpuwm.attach(name)


def reached(owner: Any, path: str) -> Any:
    for name in re.findall(r"\w+", path):
        owner = owner[int(name)] if isinstance(owner, list | tuple) else getattr(owner, name)
    return owner


@pytest.mark.parametrize("kind", REFUSED)
def test_the_remedy_leaves_the_object_to_the_fresh_module(kind: str) -> None:
    make, expected = REFUSED[kind]
    model, fresh = make(), make()
    path = f"{expected.partition('.state')[0]}.state"
    state = reached(fresh, path)
    with pytest.raises(gpuwm.Unsupported) as error:
        gpuwm.image.publish(model, "remedy@v0")
    found = re.search(r"leave them out: ignored=(\[.*\])", str(error.value))
    assert found is not None
    ignored = ast.literal_eval(found[1])
    assert ignored == ["*.state"]
    name = f"remedy@v{next(tags)}"
    gpuwm.image.publish(model, name, ignored=ignored)
    gpuwm.image.install(fresh, name)
    assert reached(fresh, path) is state
    before, after = (gpuwm.image.describe(each, ignored=ignored) for each in (model, fresh))
    assert gpuwm.image.differences(before, after) == []


def test_what_is_ignored_is_the_fresh_modules() -> None:
    gpuwm.image.publish(Holder(weight=stateful(2)), "own@v1", ignored="*.state")
    fresh: Any = Holder(weight=stateful(9))
    state = fresh.weight.state
    gpuwm.image.install(fresh, "own@v1")
    assert fresh.weight.state is state


# ---- installing --------------------------------------------------------------------------------

LACKING: dict[str, Callable[[], nn.Module]] = {
    "no attributes": lambda: Holder(weight=parameter()),
    "other attributes": lambda: Holder(weight=parameter(width=1)),
    "another dtype": lambda: Holder(weight=parameter().half()),
}


@pytest.mark.parametrize("kind", LACKING)
@pytest.mark.parametrize("held", [State(torch.ones(2)), [1], print], ids=["object", "list", "call"])
def test_an_object_that_the_version_lacks_is_named(kind: str, held: Any) -> None:
    name = f"lacking@v{next(tags)}"
    gpuwm.image.publish(LACKING[kind](), name)
    fresh: Any = Holder(weight=parameter(state=held))
    before = gpuwm.image.describe(fresh)
    with pytest.raises(gpuwm.BindError, match=r"build the module without it.*ignored=") as error:
        gpuwm.image.install(fresh, name)
    (problem,) = error.value.problems
    assert problem.startswith("attribute: weight.state is a ")
    assert problem.endswith(" here, the version has none")
    assert gpuwm.image.differences(before, fresh) == []
    del fresh.weight.state  # the remedy
    gpuwm.image.install(fresh, name)


def test_an_object_on_a_tensor_that_is_given_up_is_named() -> None:
    tied = parameter()
    gpuwm.image.publish(Holder(one=tied, two=tied), "tied@v1")
    with pytest.raises(gpuwm.BindError, match=r"attribute: two.state is a State"):
        gpuwm.image.install(Holder(one=parameter(), two=stateful()), "tied@v1")


@pytest.mark.parametrize("held", [{"other": "_thread.lock"}, {"node": 1}])
def test_an_object_that_the_module_lacks_is_named(held: dict[str, Any]) -> None:
    """`publish` makes no such records; others may."""
    mapping = gpuwm.image.publish(
        Holder(kernel=Kernel(numbers(2), 1), weight=parameter(state=1)), f"made@v{next(tags)}"
    )
    content = json.loads(mapping.files[record.FILE])
    (slot,) = (slot for node in content["nodes"] for slot in node[3] if slot[1] == "state")
    slot[2] = held
    name = f"made@v{next(tags)}"
    gpuwm.publish(
        {each: mapping.torch(each).clone() for each in mapping},
        name,
        files={record.FILE: json.dumps(content).encode()},
    )
    fresh = Holder(kernel=Kernel(numbers(2), 1), weight=parameter())
    with pytest.raises(gpuwm.BindError, match=r"object: weight.state is a .*, not there here"):
        gpuwm.image.install(fresh, name)


def test_values_on_tensors_that_the_version_lacks_are_dropped() -> None:
    fresh: Any = Holder(weight=parameter(scale=numbers(2), width=1))
    result = installed(Holder(weight=parameter()), fresh)
    assert vars(fresh.weight) == {}
    assert (result.dropped, result.values) == (("weight.scale",), ("weight.width",))


@pytest.mark.parametrize("is_trained", [False, True])
def test_slots_of_tensors_are_attributes(is_trained: bool) -> None:
    def make(state: Any) -> Any:
        weight: Any = Slotted(numbers(2))
        weight.state = state
        return Holder(weight=weight)

    fresh, more = make(3), make(None)
    held = [each.weight * 1 for each in (fresh, more)] if is_trained else []
    installed(make(3), fresh)
    installed(make(numbers(2)), more)
    assert fresh.weight.state == 3
    assert copy.copy(fresh.weight).state == 3
    assert copy.deepcopy(fresh.weight).state == 3
    assert torch.equal(more.weight.state, numbers(2))
    assert len(held) == 2 * is_trained


def test_attributes_of_subclasses_that_flatten() -> None:
    model: Any = Holder(weight=halves())
    model.weight.width, model.weight.scale, model.weight.low.scale = 3, numbers(2), numbers(3)
    more: tuple[Any, ...] = (Holder(weight=halves()), Holder(weight=None))
    for fresh in more:
        installed(model, fresh)
        assert fresh.weight.width == 3
        assert torch.equal(fresh.weight.scale, numbers(2))
        assert torch.equal(fresh.weight.low.scale, numbers(3))


def test_parts_of_subclasses_get_scratch_memory() -> None:
    low, high = (torch.empty(2, 4, device="meta") for _ in range(2))
    fresh: Any = Holder(weight=nn.Parameter(Halves(low, high, 2), requires_grad=False))
    found: list[torch.device] = []
    replay = [(fresh, lambda module: found.append(module.weight.low.device))]
    installed(Holder(weight=halves()), fresh, replay=replay)
    assert [device.type for device in found] == [DEVICE]


class Hiding(Halves):
    """Its flattening leaves its scale out."""

    def __init__(self, low: torch.Tensor, high: torch.Tensor, factor: Any) -> None:
        super().__init__(low, high, factor)
        self.scale: torch.Tensor = torch.ones(2)


def test_a_tensor_that_flattening_leaves_out() -> None:
    hiding = Hiding(numbers(2, 4), numbers(2, 4), 2)
    hiding.scale = torch.full((2,), 7.0)
    fresh: Any = Holder(weight=Hiding(numbers(2, 4), numbers(2, 4), 2))
    installed(Holder(weight=hiding), fresh)
    assert fresh.weight.scale.sum() == 14


# ---- contexts of subclasses --------------------------------------------------------------------


def test_a_plain_context_is_the_versions() -> None:
    model: Any = Holder(weight=halves(2))
    fresh: Any = Holder(weight=halves(3))
    assert gpuwm.image.differences(model, fresh) == [
        "weight<context>: value {'list': [2]} in the first, {'list': [3]} in the second"
    ]
    installed(model, fresh)
    assert fresh.weight.factor == 2


def test_a_context_that_no_other_process_could_make() -> None:
    model = Holder(weight=halves(State(numbers(1))))
    expected = r"weight<context>\[0\].absmax: a Tensor .*which image_models.Holder holds"
    with pytest.raises(gpuwm.Unsupported, match=expected):
        gpuwm.image.publish(model, "context@v1", makeable=True)


# ---- comparing ---------------------------------------------------------------------------------


def test_objects_on_tensors_are_compared() -> None:
    def lines(one: nn.Module, other: nn.Module) -> str:
        return "\n".join(gpuwm.image.differences(one, other))

    model = Holder(weight=stateful(2))
    assert lines(model, Holder(weight=stateful(2))) == ""
    assert "weight.state.absmax: SHA-256" in lines(model, Holder(weight=stateful(9)))
    assert "weight.state: object in the first only" in lines(model, Holder(weight=parameter()))
    assert "weight.state: object in the second only" in lines(Holder(weight=parameter()), model)
    listed = [quantised([State(numbers(2) + n)]) for n in range(2)]
    assert "weight.state[0].absmax: SHA-256" in lines(*listed)
    calls = quantised(numbers), quantised(parameter)
    assert "weight.state: function image_models.numbers in the first, function" in lines(*calls)
    one_object, two = on_the_module_too(), Holder(weight=stateful(), state=State(numbers(2)))
    assert "weight.state: object in the second only" in lines(one_object, two)


# ---- what other packages do --------------------------------------------------------------------


class Linear4bit(nn.Linear):
    """As bitsandbytes' layers are: the weight has a state, and refers to its module."""

    def __init__(self, size: int) -> None:
        super().__init__(size, size, bias=False)
        weight: Any = parameter()
        weight.quant_state, weight.module, weight.blocksize = State(numbers(2)), self, 64
        self.weight = weight
        self.quant_state = weight.quant_state

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        weight: Any = self.weight
        made: torch.Tensor = hidden @ weight * weight.quant_state.absmax
        return made


def test_a_builder_carries_the_objects() -> None:
    """bitsandbytes' layers lost them whenever somebody copied the parameter (accelerate#2248,
    bitsandbytes#1268)."""

    @gpuwm.builder(model="fourbits", key="all")
    def build() -> nn.Module:
        return nn.Sequential(Linear4bit(2))

    hidden = numbers(1, 2)
    for layer in (build()[0], build()[0]):  # type: ignore[index]
        assert torch.equal(layer(hidden), Linear4bit(2)(hidden))
        assert layer.weight.quant_state is layer.quant_state
        assert layer.weight.module is layer


def test_a_builder_refuses_in_the_first_process() -> None:
    @gpuwm.builder(model="loaders", key="all")
    def build() -> nn.Module:
        return nn.Sequential(quantised(numbers))

    with pytest.raises(gpuwm.Unsupported) as error:
        build()
    told = str(error.value)
    assert "0.weight.state: a function (image_models.numbers), which hangs on" in told
    assert "ignored=['*.state']" in told


def test_a_builder_whose_structure_has_the_objects() -> None:
    def four_bits() -> nn.Module:
        return nn.Sequential(Linear4bit(2))

    options: Any = {"model": "fourbits.structure", "key": "all"}
    build = gpuwm.builder(structure=four_bits, ignored=["*.module", "*.quant_state"], **options)(
        four_bits
    )
    hidden = numbers(1, 2)
    assert torch.equal(build()(hidden), build()(hidden))
    with pytest.raises(gpuwm.Invalid, match=r"ignored=.* without structure=.*give structure="):
        gpuwm.builder(ignored="*.module", **options)


@pytest.mark.parametrize("kind", [nn.Parameter, Slotted, torch.Tensor])
def test_a_builder_keeps_attributes_in_inference_mode(kind: Any) -> None:
    @gpuwm.builder(model=f"inference.{kind.__name__}", key="all")
    def build() -> Any:
        with torch.inference_mode():
            weight: Any = numbers(2)
            if kind is not torch.Tensor:
                weight = kind(weight, requires_grad=False)
            weight.state, weight.width = numbers(3), 4
            return Holder(weight=weight)

    for _ in range(2):
        weight = build().weight
        assert (weight.width, weight.state.tolist()) == (4, numbers(3).tolist())
        assert isinstance(weight, kind)


@pytest.mark.parametrize("name", ["extra_repr", "_get_name", "__repr__", "_repr_html_"])
@pytest.mark.parametrize("makes", [types.MethodType, functools.partial])
def test_how_an_object_is_printed_is_not_recorded(name: str, makes: Any) -> None:
    """torchao sets extra_repr on each module that it quantises."""
    model: Any = nn.Linear(2, 2)
    setattr(model, name, makes(repr, model))
    fresh = nn.Linear(2, 2)
    installed(model, fresh)
    assert name not in vars(fresh)
    setattr(fresh, name, makes(str, fresh))
    gpuwm.image.install(fresh, gpuwm.mapping_of(model))
    assert name in vars(fresh)


def test_other_functions_of_a_module_are_compared() -> None:
    """And a value with such a name is a value."""
    model: Any = nn.Linear(2, 2)
    model.extra_repr, model.scales = "in int8", types.MethodType(repr, model)
    fresh: Any = nn.Linear(2, 2)
    with pytest.raises(gpuwm.BindError, match="scales is a builtins.method in the version"):
        installed(model, fresh)
    fresh.scales = types.MethodType(repr, fresh)
    installed(model, fresh)
    assert fresh.extra_repr == "in int8"
