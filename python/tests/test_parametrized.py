"""Models whose weights are computed, and versions that store them; and the other way round."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from binding_models import version_of
from torch import nn
from torch.nn.utils import parametrizations, parametrize, spectral_norm, weight_norm

from gpuwm._torch import bind, init

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*weight_norm.*:DeprecationWarning"),
]

Wrap = Callable[[nn.Linear], nn.Module]
WRAPS: dict[str, Wrap] = {
    "SpectralNorm": parametrizations.spectral_norm,
    "WeightNorm": parametrizations.weight_norm,
    "SpectralNorm, the old": spectral_norm,
    "WeightNorm, the old": weight_norm,
}
wraps = pytest.mark.parametrize("kind", WRAPS)


def net(wrap: Wrap | None = None) -> nn.Module:
    linear = nn.Linear(2, 2)
    return nn.ModuleDict({"a": wrap(linear) if wrap else linear, "b": nn.Linear(2, 2)})


def problems(model: nn.Module, like: nn.Module, strict: bool = True) -> tuple[str, ...]:
    with pytest.raises(bind.BindError, match="remove_parametrizations, ") as caught:
        bind.bind(version_of(like), model, strict=strict)
    return caught.value.problems


@wraps
def test_a_weight_that_the_model_computes(kind: str) -> None:
    maker = kind.partition(",")[0]
    line = f"parametrized: {maker} computes a.weight in the model, the version stores it"
    assert problems(net(WRAPS[kind]), net()) == (line,)
    with init.empty_init():
        model = net(WRAPS[kind])
    assert problems(model, net()) == problems(model, net(), strict=False) == (line,)


@wraps
def test_a_weight_that_the_version_computes(kind: str) -> None:
    line = "parametrized: the model stores a.weight, the version what it is computed from"
    assert problems(net(), net(WRAPS[kind])) == (line,)


@wraps
def test_what_both_compute_or_has_memory_is_bound(kind: str) -> None:
    version = version_of(net(WRAPS[kind]))
    with init.empty_init():
        model = net(WRAPS[kind])
    assert not bind.bind(version, model).missing
    own = net(WRAPS[kind])
    assert bind.bind(version_of(net()), own, strict=False).unexpected == ("a.weight",)


def test_other_names_are_told_beside() -> None:
    like = net()
    like["c"] = nn.Linear(1, 1, bias=False)  # type: ignore[operator]
    found = problems(net(WRAPS["SpectralNorm"]), like)
    assert found[1:] == ("unexpected: the model has no c.weight",)


def test_the_remedy_remedies() -> None:
    with init.empty_init():
        model = net(WRAPS["WeightNorm"])
        parametrize.remove_parametrizations(model.get_submodule("a"), "weight")
    version = version_of(net())
    bind.bind(version, model)
    assert torch.equal(model.get_parameter("a.weight"), version.tensors["a.weight"])
