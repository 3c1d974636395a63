"""What the tests of images share: a module with all that an image has, and its post-processing."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import torch
from conftest import DEVICE
from torch import nn

import gpuwm
import gpuwm.image


@dataclasses.dataclass(frozen=True)
class Scales:
    """A configuration that holds tensors, as those of quantised experts do."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None
    bits: int = 8


class Kernel:
    """A helper object, with slots."""

    __slots__ = ("scale", "width")

    def __init__(self, scale: torch.Tensor, width: int) -> None:
        self.scale = scale
        self.width = width


class Method:
    """What quantises a layer, and computes with it."""

    def __init__(self) -> None:
        self.kernel: Kernel | None = None
        self.scales: Scales | None = None
        self.width = 0
        self.run: Any = None
        self.calls = 0

    def process(self, layer: nn.Module) -> None:
        """Transposes and halves: twice is not once."""
        weight: Any = layer.weight
        scale = weight.detach().abs().amax(0)
        layer.weight = nn.Parameter(weight.detach().t().contiguous() / 2, requires_grad=False)
        self.width = weight.shape[0]
        self.kernel = Kernel(scale, self.width)
        self.scales = Scales(scale)
        self.run = functools.partial(torch.mul, other=scale)
        self.calls += 1


class Layer(nn.Module):
    """A linear layer that is to be processed after loading."""

    weight: torch.Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, size))
        self.register_parameter("bias", None)
        self.method = Method()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.method.run(hidden @ self.weight)
        return made


class Attention(nn.Module):
    """Its attributes are views of another module's parameter, as MLA's are."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.project = nn.Linear(size, 2 * size, bias=False)
        self.up: torch.Tensor | None = None
        self.down: torch.Tensor | None = None
        self.scale = 1.0

    def process(self) -> None:
        up, down = self.project.weight.detach().chunk(2)
        self.up, self.down = up.t(), down
        self.scale = float(self.project.weight.detach().sum())

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        assert self.up is not None
        assert self.down is not None
        return hidden @ self.up @ self.down * self.scale


class Model(nn.Module):
    table: torch.Tensor

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(size, size)
        self.layers = nn.ModuleList([Layer(size) for _ in range(2)])
        self.attention = Attention(size)
        self.head = nn.Linear(size, size, bias=False)
        self.head.weight = self.embed.weight
        self.norm = nn.BatchNorm1d(size)
        self.register_buffer("table", torch.arange(size).cos(), persistent=False)
        self.sizes = {"in": size, "out": [size, size]}

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids)
        for layer in self.layers:
            hidden = layer(hidden)
        logits: torch.Tensor = self.head(self.norm(self.attention(hidden)) + self.table)
        return logits

    def processing(self) -> list[tuple[nn.Module, Any]]:
        """As an engine would do it."""
        layers: list[Any] = list(self.layers)
        processes = [(layer, layer.method.process) for layer in layers]
        return [*processes, (self.attention, Attention.process)]


class Holder(nn.Module):
    """Whatever a test wants, as attributes."""

    def __init__(self, **held: Any) -> None:
        super().__init__()
        for name, value in held.items():
            setattr(self, name, value)


def numbers(*shape: int) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(1), device="cpu")
    return made.to(DEVICE)


_tags = itertools.count(1)


def installed(model: nn.Module, fresh: nn.Module, **options: Any) -> Any:
    """Publishes one and installs it on the other; what `install` returns. Both are then what the
    first was."""
    before = gpuwm.image.describe(model)
    name = f"installed@v{next(_tags)}"
    gpuwm.image.publish(model, name)
    assert gpuwm.image.differences(before, model) == []
    result = gpuwm.image.install(fresh, name, **options)
    assert gpuwm.image.differences(before, fresh) == []
    return result


IDS = torch.tensor([1, 2, 3], device=DEVICE)


def loaded(seed: int = 0) -> Any:
    """As it is after loading."""
    torch.manual_seed(seed)
    model = Model()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.uniform_(0.5, 1.5)
    for module, process in model.processing():
        process(module)
    with torch.no_grad():
        model.embed.register_buffer("counts", torch.arange(3))
    model.sizes["made"] = 5
    return model.eval()
