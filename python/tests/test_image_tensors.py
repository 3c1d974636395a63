"""How tensors lie in an image: ties, views, strides, dtypes, and subclasses that flatten."""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from conftest import DEVICE, by_torch
from image_models import Holder, Kernel, installed, numbers
from torch import nn

import gpuwm
import gpuwm.image

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]


STRIDED = {
    "a permutation": lambda: numbers(2, 3, 4).permute(2, 0, 1),
    "gaps": lambda: numbers(4, 6)[:, 1:3],
    "an offset": lambda: numbers(9)[3:],
    "expanded": lambda: numbers(3, 1).expand(3, 1000),
    "no elements": lambda: torch.empty(0, 5),
    "no dimensions": lambda: torch.tensor(3.5),
    "bool": lambda: numbers(5) > 0,
    "fp8": lambda: numbers(4, 4).to(torch.float8_e4m3fn).t(),
    "fp4": lambda: torch.arange(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    "no dtype of versions": lambda: numbers(6).to(torch.complex128),
}


@pytest.mark.parametrize("kind", STRIDED)
def test_strides_and_dtypes_stay(kind: str) -> None:
    fresh = Holder(scale=None)
    result = installed(Holder(scale=STRIDED[kind](), weight=nn.Parameter(numbers(2))), fresh)
    assert set(result.registered) == {"scale", "weight"}
    assert fresh.weight.requires_grad is False


def test_an_expanded_tensor_is_stored_once() -> None:
    result = installed(Holder(scale=numbers(3, 1).expand(3, 100000)), Holder())
    assert result.mapping.nbytes < 1000


def test_one_view_twice_is_stored_once() -> None:
    weight = nn.Parameter(numbers(4, 4))
    fresh = Holder()
    result = installed(Holder(weight=weight, plain=weight.data, again=weight), fresh)
    assert len(result.mapping) == 1
    made: Any = fresh
    assert made.again is made.weight
    assert made.plain is not made.weight
    assert made.plain.data_ptr() == made.weight.data_ptr()


def test_views_without_a_tensor_that_covers_them() -> None:
    base = numbers(64)
    fresh: Any = Holder(first=torch.empty(1))
    result = installed(Holder(first=base[8:40], second=base[32:].view(4, 8)), fresh)
    (info,) = result.mapping.infos()
    assert (info.name, info.dtype, info.nbytes) == ("first.bytes", "U8", 4 * 64)
    assert fresh.second.data_ptr() - fresh.first.data_ptr() == 4 * 24
    assert result.retyped == ("first",)


def test_views_of_another_dtype() -> None:
    weight = numbers(4, 4)
    fresh: Any = Holder()
    result = installed(Holder(weight=weight, bytes=weight.view(torch.uint8)[1]), fresh)
    assert [info.name for info in result.mapping.infos()] == ["weight"]
    assert fresh.bytes.data_ptr() == fresh.weight[1].data_ptr()


def test_what_overlaps_a_buffer_is_private_with_it() -> None:
    model: Any = Holder(weight=nn.Parameter(numbers(4, 4)))
    model.register_buffer("row", model.weight.data[1])
    fresh: Any = Holder()
    result = installed(model, fresh)
    assert result.private == ("weight", "row")
    fresh.row.zero_()
    assert fresh.weight[1].sum() == 0


def test_names_that_private_fits_are_copies() -> None:
    fresh: Any = Holder()
    model = Holder(first=numbers(3), second=numbers(3))
    result = installed(model, fresh, private="first")
    assert (result.private, result.shared) == (("first",), ("second",))
    fresh.first.add_(1)
    with pytest.raises(gpuwm.WriteError, match=r"second"):
        fresh.second.add_(1)


def test_private_of_publish_stays_the_modules_own() -> None:
    model: Any = Holder(first=numbers(3), second=numbers(3))
    begin = model.first.data_ptr()
    gpuwm.image.publish(model, "private@v1", private=["fir*"])
    assert model.first.data_ptr() == begin
    model.first.add_(1)
    with pytest.raises(gpuwm.WriteError, match=r"second"):
        model.second.add_(1)


def test_without_guard_classes_are_plain() -> None:
    model: Any = Holder(weight=nn.Parameter(numbers(3)))
    gpuwm.image.publish(model, "plain@v1", guard=False)
    fresh: Any = Holder()
    gpuwm.image.install(fresh, "plain@v1", guard=False)
    assert type(model.weight) is type(fresh.weight) is nn.Parameter


def test_tensors_stay_the_same_objects() -> None:
    with gpuwm.empty_init():
        fresh = nn.Linear(4, 4)
    weight = fresh.weight
    unseen = {1: weight}
    installed(nn.Linear(4, 4), fresh)
    assert fresh.weight is weight is unseen[1]
    assert not weight.is_meta


def test_names_roles_and_shapes_become_the_published_ones() -> None:
    model = Holder(weight=nn.Parameter(numbers(2, 3).bfloat16()), scale=numbers(2))
    model.register_buffer("kept", numbers(2))
    model.register_buffer("table", numbers(2), persistent=False)
    model.register_parameter("bias", None)
    fresh: Any = Holder(weight=nn.Parameter(numbers(3, 3)), bias=nn.Parameter(numbers(3)))
    fresh.register_buffer("kept", numbers(2), persistent=False)
    fresh.register_parameter("scale", nn.Parameter(numbers(2)))
    fresh.register_parameter("zero", nn.Parameter(numbers(2)))
    fresh.register_buffer("extra", numbers(2))
    result = installed(model, fresh)
    assert list(fresh.state_dict()) == ["weight", "kept"]
    assert set(result.dropped) == {"bias", "zero", "extra"}
    assert set(result.retyped) == {"weight", "scale", "kept"}
    assert result.registered == ("table",)
    assert fresh.bias is None


def test_attributes_of_tensors() -> None:
    weight: Any = nn.Parameter(numbers(2, 2))
    weight.output_dim, weight.scale = 1, numbers(1)
    fresh: Any = Holder(weight=nn.Parameter(numbers(2, 2)))
    fresh.weight.input_dim = 0
    installed(Holder(weight=weight), fresh)
    assert fresh.weight.output_dim == 1
    assert not hasattr(fresh.weight, "input_dim")


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_tensors_on_the_cpu_stay_there() -> None:
    model: Any = Holder(weight=numbers(4), words=torch.arange(5, device="cpu"))
    model.register_buffer("table", torch.ones(3, device="cpu"))
    fresh: Any = Holder(words=None)
    result = installed(model, fresh)
    assert set(result.private) == {"words", "table"}
    fresh.words.zero_()


def test_rnns_keep_weak_references() -> None:
    with gpuwm.empty_init():
        fresh = nn.LSTM(3, 5)
    installed(nn.LSTM(3, 5), fresh)
    fresh(torch.ones(2, 3))


# ---- subclasses --------------------------------------------------------------------------------


class Halves(torch.Tensor):
    """A tensor as two, with a factor."""

    @staticmethod
    def __new__(cls, low: torch.Tensor, high: torch.Tensor, factor: Any) -> Halves:
        shape = (low.size(0) + high.size(0), *low.size()[1:])
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=low.dtype)

    def __init__(self, low: torch.Tensor, high: torch.Tensor, factor: Any) -> None:
        self.low, self.high, self.factor = low, high, factor

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["low", "high"], [self.factor]

    @classmethod
    def __tensor_unflatten__(cls, parts: Any, context: Any, size: Any, stride: Any) -> Halves:
        return cls(parts["low"], parts["high"], *context)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.detach.default:
            (tensor,) = args
            return cls(tensor.low, tensor.high, tensor.factor)
        plain = [
            torch.cat([a.low, a.high]) * a.factor if isinstance(a, Halves) else a for a in args
        ]
        return func(*plain, **(kwargs or {}))


def halves(factor: Any = 2) -> nn.Parameter:
    return nn.Parameter(Halves(numbers(2, 4), numbers(2, 4) + 1, factor), requires_grad=False)


def test_a_subclass_that_flattens_is_stored_by_its_parts() -> None:
    model: Any = Holder(weight=halves())
    expected = torch.mm(model.weight, numbers(4, 4))
    fresh: Any = Holder(weight=None)
    result = installed(model, fresh)
    assert list(result.mapping) == ["weight.high", "weight.low"]
    assert torch.equal(torch.mm(model.weight, numbers(4, 4)), expected)
    assert torch.equal(torch.mm(fresh.weight, numbers(4, 4)), expected)
    assert fresh.weight.low.data_ptr() == result.mapping.torch("weight.low").data_ptr()
    assert isinstance(fresh.weight, nn.Parameter)
    assert "weight" in fresh._parameters


class Number(int):
    pass


def test_a_context_that_no_image_has_is_refused() -> None:
    """The remedy is followed: it is the fresh module's."""
    model, fresh = Holder(weight=halves(Number(3))), Holder(weight=halves(Number(4)))
    told = r"weight<context>\[0\]: a Number .*which image_models.Holder holds(.|\n)*ignored="
    with pytest.raises(gpuwm.Unsupported, match=rf"{told}\['weight<context>'\]$"):
        gpuwm.image.publish(model, "context@v1")
    gpuwm.image.publish(model, "context@v1", ignored=["weight<context>"])
    gpuwm.image.install(fresh, "context@v1")
    made: Any = fresh
    assert (type(made.weight.factor), made.weight.factor) == (Number, 4)
    with pytest.raises(gpuwm.BindError, match=r"context: weight is a .*Halves.*no plain data"):
        gpuwm.image.install(Holder(weight=None), "context@v1")


class Layout(enum.Enum):
    PLAIN = 1


@dataclasses.dataclass(frozen=True)
class Tiles:
    """As a layout of torchao."""

    inner: int
    layout: Layout = Layout.PLAIN
    sizes: tuple[int, ...] = (1, 2)


class Scaling(NamedTuple):
    tiles: Tiles
    function: Any


CONTEXTS: dict[str, Callable[[int], Any]] = {
    "an object": Tiles,
    "a named tuple": lambda n: Scaling(Tiles(n), nn.functional.relu),
    "a class and a function": lambda n: [nn.Linear, nn.functional.relu, n],
    "a dict of objects": lambda n: {"a": [Tiles(n)], 3: (Tiles(n), torch.int8)},
    "a device": lambda n: (torch.device(DEVICE), n),
}


@pytest.mark.parametrize("kind", CONTEXTS)
def test_a_context_is_carried(kind: str) -> None:
    """Also into a module that has no such tensor."""
    make = CONTEXTS[kind]
    model: Any = Holder(weight=halves(make(2)))
    one, other = (gpuwm.image.describe(Holder(weight=halves(make(n)))) for n in (2, 3))
    (line,) = gpuwm.image.differences(one, other)
    assert line.startswith("weight<context>: value ")
    for weight in (halves(make(3)), None):
        fresh: Any = Holder(weight=weight)
        installed(model, fresh)
        assert fresh.weight.factor == make(2)
    name = "makeable.context@" + str(len(kind))
    gpuwm.image.publish(Holder(weight=halves(make(2))), name, makeable=True)
    made: Any = gpuwm.image.module(name)
    assert made.weight.factor == make(2)


def test_a_context_without_an_end_is_refused() -> None:
    held: list[Any] = []
    held.append(held)
    with pytest.raises(gpuwm.Unsupported, match=r"weight<context>"):
        gpuwm.image.publish(Holder(weight=halves(held)), "endless@v1")


def test_a_context_of_a_class_that_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    gpuwm.image.publish(Holder(weight=halves(Tiles(2))), "absent@v1")
    monkeypatch.delattr(sys.modules[__name__], "Tiles")
    with pytest.raises(gpuwm.BindError, match=r"context: weight: .*Tiles"):
        gpuwm.image.install(Holder(weight=None), "absent@v1")


def test_parts_are_private_with_their_tensor() -> None:
    fresh: Any = Holder()
    result = installed(Holder(weight=halves(), scale=numbers(2)), fresh, private="weight")
    assert set(result.private) == {"weight.low", "weight.high"}


class Accumulating(nn.Module):
    """It writes into tensors that are no buffers: its own, a list's and a helper object's."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(numbers(3))
        self.workspace = torch.zeros_like(self.weight.data)
        self.steps = [torch.zeros_like(self.workspace)]
        self.kernel = Kernel(torch.zeros_like(self.workspace), 3)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for each in (self.workspace, self.steps[0], self.kernel.scale):
            each.add_(hidden)
        return self.workspace * self.weight


WRITTEN = ("workspace", "steps[[]*", "*.kernel.workspace", "kernel.scale")


def test_what_the_module_writes_is_private_everywhere() -> None:
    model, fresh = Accumulating(), Accumulating()
    gpuwm.image.publish(model, "written@v1", written=WRITTEN)
    result = gpuwm.image.install(fresh, "written@v1")
    hidden = numbers(3)
    for _ in range(2):
        assert torch.equal(model(hidden), fresh(hidden))
    assert result.shared == ("weight",)
    assert set(result.private) == {"workspace", "steps[0]", "kernel.scale"}
    assert fresh.workspace.data_ptr() != model.workspace.data_ptr()


def test_written_fits_any_path_to_a_tensor() -> None:
    workspace = numbers(3)
    model: Any = Holder(first=workspace, kernel=Kernel(workspace, 3))
    gpuwm.image.publish(model, "paths@v1", written="kernel.scale")
    assert gpuwm.image.install(Holder(kernel=Kernel(numbers(3), 3)), "paths@v1").private == (
        "first",
    )
    model.kernel.scale.add_(1)


def test_what_overlaps_a_written_tensor_is_private_with_it() -> None:
    weight = nn.Parameter(numbers(4, 4))
    model: Any = Holder(weight=weight, workspace=weight.data[1], other=numbers(2))
    gpuwm.image.publish(model, "overlap@v1", written="workspace")
    fresh: Any = Holder()
    result = gpuwm.image.install(fresh, "overlap@v1")
    assert (set(result.private), result.shared) == ({"weight", "workspace"}, ("other",))
    for each in (model, fresh):
        each.workspace.zero_()
        assert each.weight[1].sum() == 0


def test_a_glob_of_written_may_fit_nothing() -> None:
    gpuwm.image.publish(Holder(weight=numbers(2)), "nothing@v1", written=["*.workspace"])
