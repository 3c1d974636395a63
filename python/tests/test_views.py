"""What shares memory with parameters that get other memory: it moves along, or is named."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from binding_models import trained, version_of
from conftest import DEVICE, by_torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.utils import spectral_norm
from torch.utils import checkpoint as recompute
from view_models import BUILT, GLOBALS, OUTSIDE, PLACES, UNREACHED, Flat, Mixer

import gpuwm
from gpuwm._torch import bind, guards

pytestmark = by_torch

_Weak: Any = StorageWeakRef  # torch has no types for it


@pytest.mark.parametrize("private", [False, True], ids=["shared", "private"])
@pytest.mark.parametrize(("place", "empty"), BUILT)
def test_a_view_moves_with_its_parameter(place: str, private: bool, empty: bool) -> None:
    hold, found = PLACES[place]
    version = version_of(Mixer(1, hold))
    if empty:
        with gpuwm.empty_init():
            model = Mixer(2, hold)
    else:
        model = Mixer(2, hold)
    view = found(model)
    result = bind.bind(version, model, private="conv.weight" if private else ())
    assert found(model) is view
    assert len(result.views) == 1
    assert view.data_ptr() == model.conv.weight.data_ptr()
    assert torch.equal(view, version.tensors["conv.weight"].view(4, 3))
    if private:
        view.zero_()
        assert not model.conv.weight.any()
    else:
        with pytest.raises(gpuwm.WriteError, match="private=\\['conv.weight'\\]"):
            view.zero_()


def test_a_part_of_lent_memory_moves_too() -> None:
    """DLPack makes another storage of it, in which the part has an offset of its own."""

    def keep_part(model: Any, view: torch.Tensor) -> None:
        model.matrix = torch.utils.dlpack.from_dlpack(view)[1:]

    version = version_of(Mixer(1, PLACES["attribute"][0]))
    model: Any = Mixer(2, keep_part)
    bind.bind(version, model)
    assert model.matrix.data_ptr() == model.conv.weight.data_ptr() + 12
    assert torch.equal(model.matrix, version.tensors["conv.weight"].view(4, 3)[1:])


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda t: t.t(),
    "expanded": lambda t: t[None].expand(3, -1, -1),
    "a part": lambda t: t[1:3, ::2],
    "a view of a view": lambda t: t.t()[1:].view(3, 4)[:, 2],
    "other bytes": lambda t: t.view(torch.uint8),
    "one element": lambda t: t[2, 3],
    "differentiable": lambda t: t.requires_grad_().t(),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_views_of_all_kinds(kind: str) -> None:
    def make() -> Any:
        model: Any = nn.Module()
        model.weight = nn.Parameter(torch.rand(4, 4))
        model.view = VIEWS[kind](model.weight if kind == "differentiable" else model.weight.data)
        return model

    version, model = version_of(make()), make()
    bind.bind(version, model)
    assert torch.equal(model.view, VIEWS[kind](version.tensors["weight"]))
    begin, offset = model.weight.data_ptr(), model.view.storage_offset()
    assert model.view.data_ptr() == begin + offset * model.view.element_size()
    assert not model.view.requires_grad


def test_conjugated_and_negated_views() -> None:
    def make() -> Any:
        model: Any = nn.Module()
        model.weight = nn.Parameter(torch.rand(3, dtype=torch.complex64))
        model.conj, model.neg = model.weight.data.conj(), torch._neg_view(model.weight.data.real)
        return model

    version, model = version_of(make()), make()
    bind.bind(version, model)
    assert torch.equal(model.conj, version.tensors["weight"].conj())
    assert torch.equal(model.neg, -version.tensors["weight"].real)
    assert model.conj.data_ptr() == model.weight.data_ptr()


def test_the_old_memory_is_freed() -> None:
    hold, _ = PLACES["attribute"]
    version, model = version_of(Mixer(1, hold)), Mixer(2, hold)
    storage = _Weak(model.conv.weight.untyped_storage())
    bind.bind(version, model)
    assert storage.expired()


def test_a_failure_midway_gives_views_back(monkeypatch: pytest.MonkeyPatch) -> None:
    hold, found = PLACES["dict"]
    version, model = version_of(Mixer(1, hold)), Mixer(2, hold)
    before = model.conv.weight.detach().clone()

    class Fails:
        name = "last"

        def do(self) -> None:
            raise ZeroDivisionError

        undo = do

    real = bind._do
    monkeypatch.setattr(bind, "_do", lambda steps: real([*steps, Fails()]))
    with pytest.raises(ZeroDivisionError):
        bind.bind(version, model)
    found(model).add_(1)
    assert torch.equal(model.conv.weight, before + 1)


# ---- what can't move ---------------------------------------------------------------------------


def test_what_spans_several_parameters_is_named_and_can_be_made_again() -> None:
    version, model = version_of(Flat()), Flat()
    before = model.flat.clone()
    with pytest.raises(bind.BindError) as caught:
        bind.bind(version, model)
    assert caught.value.problems == (
        "view: flat has memory of one, two, and can't be the same view of the version's memory",
    )
    assert "set it to None before the model is bound, and make it again" in str(caught.value)
    assert torch.equal(model.flat, before)
    assert model.one.data_ptr() == model.flat.data_ptr()  # nothing moved
    model.flat = None
    assert bind.bind(version, model).views == ()
    model.flat = torch.cat([model.one, model.two.flatten()])
    assert torch.equal(model.flat[:4], version.tensors["one"])


def test_other_strides_of_the_version_are_named() -> None:
    hold, _ = PLACES["attribute"]
    other = torch.rand(3, 1, 4).permute(2, 1, 0)
    version, model = version_of(Mixer(1, hold), conv__weight=other), Mixer(2, hold)
    with pytest.raises(bind.BindError, match="view: matrix has memory of conv.weight, and can't"):
        bind.bind(version, model)


def test_a_saved_view_with_other_values_is_named_and_can_be_copied() -> None:
    hold, _ = PLACES["saved buffer"]
    version = version_of(Mixer(1, hold), matrix=torch.zeros(4, 3))
    model: Any = Mixer(2, hold)
    with pytest.raises(bind.BindError, match="values: matrix is a view of conv.weight") as caught:
        bind.bind(version, model)
    assert "give it memory of its own before the model is bound: clone()" in str(caught.value)
    model.matrix = model.matrix.clone()
    bind.bind(version, model)
    assert not model.matrix.any()
    assert model.conv.weight.any()


# ---- what the walk does not reach ---------------------------------------------------------------


@pytest.fixture
def nothing_global() -> Iterator[None]:
    yield
    GLOBALS.clear()


@pytest.mark.usefixtures("nothing_global")
@pytest.mark.parametrize("kind", UNREACHED)
def test_what_is_not_found_is_warned_of(kind: str) -> None:
    if kind == "array" and DEVICE != "cpu":
        pytest.skip("NumPy reads host memory")
    version, model = version_of(Mixer(1, UNREACHED[kind])), Mixer(2, UNREACHED[kind])
    before = model.conv.weight.detach().clone()
    with pytest.raises(RuntimeWarning, match=f"conv.weight gets other memory, and {OUTSIDE}"):
        bind.bind(version, model)
    assert torch.equal(model.conv.weight, before)  # the warning, as an error, came before all else
    with pytest.warns(RuntimeWarning, match=OUTSIDE) as caught:
        bind.bind(version, model)
    assert [warning.filename for warning in caught] == [__file__]
    assert torch.equal(model.conv.weight, version.tensors["conv.weight"])
    bind.bind(version_of(Mixer(3, UNREACHED[kind])), model)  # it has nothing of this memory


@pytest.mark.usefixtures("nothing_global")
def test_a_warned_view_can_become_an_attribute() -> None:
    """The remedy of the warning."""
    version, model = version_of(Mixer(1, UNREACHED["global"])), Mixer(2, UNREACHED["global"])
    made: Any = model
    made.matrix = GLOBALS["view"]
    assert bind.bind(version, model).views == ("matrix",)
    assert torch.equal(GLOBALS["view"], model.conv.weight.view(4, 3))


def test_variables_of_functions_are_warned_of() -> None:
    version, model = version_of(trained()), trained(1)
    old = model.hidden.weight.data
    with pytest.warns(RuntimeWarning, match=r"hidden.weight .* a Tensor \[8, 8\]"):
        bind.bind(version, model)
    assert not torch.equal(old, model.hidden.weight)


# ---- what is no alias --------------------------------------------------------------------------


def _layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


def _forward(model: nn.Module) -> Any:
    return model(torch.ones(2, 4, device=DEVICE))


def _frozen(model: nn.Module) -> Any:
    """As a model with adapters: only an input needs gradients."""
    model.requires_grad_(False)
    return model(torch.ones(2, 4, device=DEVICE, requires_grad=True))


def _transposed(model: Any) -> Any:
    return _forward(model[0]) @ model[2].weight.t()


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError


def _custom(model: Any) -> Any:
    product: Any = _Product
    return product.apply(_forward(model[0]), model[2].weight.t())


def _stepped(model: nn.Module) -> Any:
    optimizer = torch.optim.AdamW(model.parameters())
    loss = _forward(model).sum()
    loss.backward()
    optimizer.step()
    return optimizer, loss


def _recomputed(model: nn.Module) -> Any:
    x = torch.ones(2, 4, device=DEVICE, requires_grad=True)
    return recompute.checkpoint(model, x, use_reentrant=False)


def _reduced(model: nn.Module) -> Any:
    """As DDP: lists of parameters by buckets, and hooks of their gradients."""
    parameters: list[Any] = list(model.parameters())
    hooks = [p.register_post_accumulate_grad_hook(lambda p: None) for p in parameters]
    nodes = [p.expand_as(p).grad_fn.next_functions[0][0] for p in parameters]
    return parameters, hooks, nodes


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "an output with gradients": _forward,
    "an output of a frozen model": _frozen,
    "a transposed weight in a graph": _transposed,
    "a custom function": _custom,
    "an optimizer": _stepped,
    "recomputation": _recomputed,
    "as DDP": _reduced,
    "a deep copy": copy.deepcopy,
    "an average": torch.optim.swa_utils.AveragedModel,
    "a state dict's copies": lambda model: {n: t.clone() for n, t in model.state_dict().items()},
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_ordinary_holders_are_no_aliases(holder: str) -> None:
    version, model = version_of(_layers()), _layers()
    held = HOLDERS[holder](model)
    bind.bind(version, model)
    del held


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_torch_compiled_is_no_alias(backend: str) -> None:
    version, model = version_of(_layers()), _layers()
    compiled: Any = torch.compile(model, backend=backend)
    held = _forward(compiled)
    bind.bind(version, model)
    assert not torch.equal(_forward(compiled), held)
    torch.compiler.reset()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "LSTM": lambda: nn.LSTM(3, 4, num_layers=2),
    "weight_norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
    "attention": lambda: nn.MultiheadAttention(4, 2),
    "transformer": lambda: nn.TransformerEncoderLayer(4, 2, 8),
    "one tensor's parts": lambda: _parts(),
}


def _parts() -> nn.Module:
    """Parameters that are parts of one tensor, which nobody has besides, as after flattening."""
    model: Any = nn.Module()
    flat = torch.rand(12)
    model.one, model.two = nn.Parameter(flat[:4]), nn.Parameter(flat[4:])
    found: nn.Module = model
    return found


@pytest.mark.parametrize("empty", [False, True], ids=["with memory", "empty_init"])
@pytest.mark.parametrize("kind", MODELS)
def test_ordinary_models_have_no_views(kind: str, empty: bool) -> None:
    version = version_of(MODELS[kind]())
    if empty:
        with gpuwm.empty_init():
            model = MODELS[kind]()
    else:
        model = MODELS[kind]()
    assert bind.bind(version, model).views == ()


# ---- public reports ----------------------------------------------------------------------------


def test_split_projections_follow_their_joint_weight() -> None:
    """TransformerLensOrg/TransformerLens issue 1637: parameters that are parts of a joint weight
    keep stale values after that weight is exchanged. Here all of them are names of the version."""

    class Joint(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.joint = nn.Linear(4, 12, bias=False)
            self.q, self.k, self.v = (
                nn.Parameter(part) for part in torch.tensor_split(self.joint.weight, 3)
            )

    version, model = version_of(Joint()), Joint()
    bind.bind(version, model)
    assert torch.equal(torch.cat([model.q, model.k, model.v]), model.joint.weight)
    assert torch.equal(model.joint.weight, version.tensors["joint.weight"])


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, of the older spectral norm
def test_a_normalised_weight_is_not_of_the_old_memory() -> None:
    """pytorch/pytorch pull request 8170: spectral_norm keeps `weight.data` as a plain attribute
    until the first call."""
    version = version_of(spectral_norm(nn.Linear(3, 3)))
    model: Any = spectral_norm(nn.Linear(3, 3))
    assert bind.bind(version, model).views == ("weight",)
    assert model.weight.data_ptr() == model.weight_orig.data_ptr()


def test_a_cached_matrix_is_not_of_the_old_weight() -> None:
    """intel/ipex-llm issue 149: a convolution caches its weight as a matrix, and another call gives
    the weight other memory: the matrix is not updated."""

    class Convolution(nn.Conv2d):
        matrix: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.matrix is None:
                self.matrix = self.weight.detach().view(self.out_channels, -1)
            return x @ self.matrix.t()

    version, model = version_of(Convolution(2, 3, 2)), Convolution(2, 3, 2)
    x = torch.rand(5, 8)
    model(x)
    bind.bind(version, model)
    assert torch.equal(model(x), x @ version.tensors["weight"].view(3, 8).t())


def test_the_guard_of_a_view_is_of_its_own_class() -> None:
    hold, found = PLACES["buffer"]
    model = Mixer(2, hold)
    bind.bind(version_of(Mixer(1, hold)), model)
    assert type(found(model)) is guards.shared_class(torch.Tensor)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copied = copy.deepcopy(model)
    found(copied).zero_()
