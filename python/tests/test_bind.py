"""Mapping.bind: what it binds, and that it binds nothing where anything doesn't fit."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from binding_models import Net, Version, addresses, trained, version_of
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

import gpuwm
from gpuwm._torch import bind, guards, init

IDS = torch.arange(4)


def empty_net() -> Net:
    with init.empty_init():
        return Net().eval()


def bound_names(version: Any, model: nn.Module) -> set[str]:
    begins = {tensor.data_ptr() for tensor in version.tensors.values()}
    return {name for name, address in addresses(model).items() if address in begins}


def test_parameters_are_the_memory_and_buffers_are_copies() -> None:
    ordinary = trained()
    version, model = version_of(ordinary), empty_net()
    before = {id(parameter): name for name, parameter in model.named_parameters()}
    result = bind.bind(version, model)
    names = {"embed.weight", "head.weight", "hidden.weight", "hidden.bias"}
    assert set(result.shared) == names | {"norm.weight", "norm.bias"}
    assert set(result.private) == {
        *("scale", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
    }
    assert (result.missing, result.unexpected) == ((), ())
    assert result.tied == (("embed.weight", "head.weight"),)
    assert bound_names(version, model) == set(result.shared)
    assert {id(parameter): name for name, parameter in model.named_parameters()} == before
    assert model.head.weight is model.embed.weight
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert torch.equal(model(IDS), ordinary(IDS))


def test_buffers_keep_their_memory() -> None:
    """What else refers to a buffer, or has a view of it, sees the version's values."""
    version, model = version_of(trained()), empty_net()
    buffer, view = model.scale, model.scale[2:]
    bind.bind(version, model)
    assert model.scale is buffer
    assert torch.equal(view, version.tensors["scale"][2:])
    model.scale.add_(1)  # its own


def test_buffers_are_shared_on_request() -> None:
    version, model = version_of(trained()), empty_net()
    result = bind.bind(version, model, share_buffers=["norm.*"])
    assert {"norm.running_mean", "norm.running_var"} < set(result.shared)
    assert result.private == ("scale",)
    assert bound_names(version, model) == set(result.shared)
    everything = bind.bind(version, empty_net(), share_buffers=True)
    assert everything.private == ()


def test_private_parameters_may_be_written() -> None:
    version, model = version_of(trained()), empty_net()
    result = bind.bind(version, model, private=["hidden.*", "norm.weight"])
    assert {"hidden.weight", "hidden.bias", "norm.weight"} < set(result.private)
    with torch.no_grad():
        model.hidden.weight += 1
    assert torch.equal(model.hidden.weight, version.tensors["hidden.weight"] + 1)
    model.hidden.weight.requires_grad_(True)


def test_a_private_tied_parameter_is_one_copy() -> None:
    version, model = version_of(trained()), empty_net()
    result = bind.bind(version, model, private="head.*")
    assert {"head.weight", "embed.weight"} < set(result.private)
    assert model.head.weight is model.embed.weight


@pytest.mark.parametrize("option", ["private", "share_buffers"])
def test_a_glob_that_fits_nothing_is_refused(option: str) -> None:
    options: Any = {option: ["hiden.*"]}
    with pytest.raises(gpuwm.Invalid, match=r"hiden.\*"):
        bind.bind(version_of(trained()), empty_net(), **options)


def test_all_that_does_not_fit_is_told_and_nothing_bound() -> None:
    version = version_of(
        trained(),
        norm__bias=None,
        surplus=torch.ones(1),
        hidden__weight=torch.ones(8, 9),
        hidden__bias=torch.ones(8, dtype=torch.bfloat16),
    )
    model = empty_net()
    scale = model.scale.clone()
    for strict in (True, False):
        with pytest.raises(bind.BindError) as caught:
            bind.bind(version, model, strict=strict)
        text = str(caught.value)
        assert "shape: hidden.weight is [8, 8] in the model, [8, 9] in the version" in text
        assert "torch.float32 in the model, torch.bfloat16 in the version" in text
        assert "no memory: parameter norm.bias" in text
        assert ("missing: the version has no norm.bias" in text) == strict
        assert ("unexpected: the model has no surplus" in text) == strict
        assert len(caught.value.problems) == (5 if strict else 3)
        assert all(parameter.is_meta for parameter in model.parameters())
        assert torch.equal(model.scale, scale)
        with pytest.raises(init.Unbound):
            model(IDS)


def test_names_below_another_module_are_explained() -> None:
    ordinary = trained()
    wrapped = nn.ModuleDict({"_orig_mod": empty_net()})
    with pytest.raises(bind.BindError, match=r"without '_orig_mod': bind model._orig_mod"):
        bind.bind(version_of(ordinary), wrapped)
    version = version_of(nn.ModuleDict({"model": ordinary}))
    with pytest.raises(bind.BindError, match=r"ModuleDict\(\{'model': model\}\)"):
        bind.bind(version, empty_net())
    model = empty_net()
    bind.bind(version, nn.ModuleDict({"model": model}))
    assert torch.equal(model(IDS), ordinary(IDS))


def test_without_strict_names_may_differ_where_there_is_memory() -> None:
    version = version_of(trained(), norm__bias=None, scale=None, surplus=torch.ones(1))
    model = empty_net()
    model.norm.bias = nn.Parameter(torch.zeros(8))
    result = bind.bind(version, model, strict=False)
    assert (set(result.missing), result.unexpected) == ({"norm.bias", "scale"}, ("surplus",))
    assert model.norm.bias.requires_grad


def test_a_failure_midway_undoes_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    version, model = version_of(trained()), trained(1)
    model.hidden.weight.requires_grad_(True)
    held = weakref.ref(model.hidden.bias)
    before, was = addresses(model), {n: t.clone() for n, t in model.state_dict().items()}

    class Fails:
        name = "last"

        def do(self) -> None:
            raise ZeroDivisionError

        undo = do

    last, real = Fails(), bind._do
    monkeypatch.setattr(bind, "_do", lambda steps: real([*steps, last]))
    with pytest.raises(ZeroDivisionError):
        bind.bind(version, model)
    assert addresses(model) == before
    assert all(torch.equal(tensor, was[name]) for name, tensor in model.state_dict().items())
    assert all(type(parameter) is nn.Parameter for parameter in model.parameters())
    assert model.hidden.weight.requires_grad
    assert held() is model.hidden.bias


def test_what_torch_refuses_to_swap_is_named_and_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    version, model = version_of(trained()), empty_net()

    def swap(tensor: torch.Tensor, other: torch.Tensor) -> None:
        if tensor is model.norm.bias:
            raise RuntimeError("held")
        real(tensor, other)

    real = init.swap
    monkeypatch.setattr(init, "swap", swap)
    with pytest.raises(bind.BindError, match=r"norm.bias could not be bound: held"):
        bind.bind(version, model)
    assert all(parameter.is_meta for parameter in model.parameters())


# ---- identity ---------------------------------------------------------------------------------


def test_an_ordinary_model_is_bound_and_keeps_attributes_and_holders() -> None:
    version, model = version_of(trained()), trained(1)
    model.hidden.weight.note = 7  # type: ignore[attr-defined]
    held = weakref.ref(model.hidden.bias)
    model.hidden.bias.note = 8  # type: ignore[attr-defined]
    graph = model.norm.weight * model.norm.weight  # holds the parameter
    bind.bind(version, model)
    assert model.hidden.weight.note == 7  # type: ignore[attr-defined]
    assert model.hidden.bias.note == 8  # type: ignore[attr-defined]
    assert held() is model.hidden.bias
    assert {"hidden.bias", "norm.weight"} < bound_names(version, model)
    assert not model.norm.weight.requires_grad
    del graph


def test_empty_memory_that_is_referred_to_weakly_is_refused_by_name() -> None:
    model = empty_net()
    held = weakref.ref(model.hidden.bias)
    with pytest.raises(bind.BindError, match=r"identity: hidden.bias .* weak reference"):
        bind.bind(version_of(trained()), model)
    assert held() is not None
    assert model.embed.weight.is_meta


def test_placeholders_are_filled() -> None:
    version, model = version_of(trained()), trained(1)
    model.hidden.weight = nn.Parameter(torch.tensor(0.0))
    model.hidden.bias = nn.Parameter(torch.empty(0))
    held = model.hidden.weight
    weakly = weakref.ref(model.hidden.bias)
    model.register_buffer("scale", torch.empty(0))
    bind.bind(version, model)
    assert held is model.hidden.weight
    assert held.shape == (8, 8)
    assert weakly() is model.hidden.bias
    assert {"hidden.weight", "hidden.bias"} < bound_names(version, model)
    assert torch.equal(model.scale, version.tensors["scale"])


def test_a_real_buffer_without_dimensions_is_no_placeholder() -> None:
    version = version_of(trained(), norm__num_batches_tracked=torch.zeros(2, dtype=torch.long))
    with pytest.raises(bind.BindError, match=r"shape: norm.num_batches_tracked"):
        bind.bind(version, empty_net())


def test_strides_of_what_was_saved_permuted_are_kept() -> None:
    permuted = torch.arange(64.0).reshape(8, 8).t()
    version, model = version_of(trained(), hidden__weight=permuted), empty_net()
    bind.bind(version, model, private=["norm.weight"])
    assert model.hidden.weight.stride() == (1, 8)
    assert torch.equal(model.hidden.weight, permuted)
    own = empty_net()
    bind.bind(version, own, private=["hidden.weight"])
    assert own.hidden.weight.stride() == (1, 8)
    assert own.hidden.weight.data_ptr() != permuted.data_ptr()


def test_bind_in_inference_mode_makes_ordinary_tensors() -> None:
    version = version_of(trained())
    with torch.inference_mode():
        model = empty_net()
        bind.bind(version, model, private=["hidden.weight"])
    assert not any(tensor.is_inference() for tensor in model.parameters())
    x = torch.ones(1, 8, requires_grad=True)
    model.hidden(x).sum().backward()
    assert x.grad is not None


def test_gradients_of_before_are_no_obstacle_in_inference_mode() -> None:
    version, model = version_of(trained()), trained(1)
    model.requires_grad_(True)
    model(IDS).sum().backward()
    loss = model.hidden.weight.sum()  # its graph has an accumulator of it
    with torch.inference_mode():
        bind.bind(version, model)
    assert torch.equal(model(IDS), trained()(IDS))
    with pytest.raises(RuntimeError, match="swap_tensors"):
        loss.backward()  # type: ignore[no-untyped-call]


def test_a_second_bind_replaces_the_first() -> None:
    first, second, model = version_of(trained()), version_of(trained(1)), empty_net()
    bind.bind(first, model)
    parameter = model.hidden.weight
    bind.bind(second, model, guard=False)
    assert model.hidden.weight is parameter
    assert type(parameter) is nn.Parameter
    assert torch.equal(model(IDS), trained(1)(IDS))


# ---- tied -------------------------------------------------------------------------------------


def test_a_version_may_have_either_name_of_what_is_tied() -> None:
    for name in ("head__weight", "embed__weight"):
        version, model = version_of(trained(), **{name: None}), empty_net()
        result = bind.bind(version, model)
        assert {"head.weight", "embed.weight"} < set(result.shared)
        assert result.missing == ()
        assert torch.equal(model(IDS), trained()(IDS))


def test_two_equal_tensors_may_be_one_of_the_model() -> None:
    version = version_of(trained())
    version.tensors["head.weight"] = version.tensors["head.weight"].clone()
    model = empty_net()
    assert bind.bind(version, model).unexpected == ()
    assert model.head.weight is model.embed.weight


def test_two_different_tensors_of_a_tied_model_are_refused() -> None:
    version = version_of(trained())
    version.tensors["head.weight"] = version.tensors["head.weight"] + 1
    with pytest.raises(bind.BindError, match=r"embed.weight and head.weight .* untied") as caught:
        bind.bind(version, empty_net())
    assert len(caught.value.problems) == 1


def test_an_untied_model_binds_a_tied_version() -> None:
    version, model = version_of(trained()), empty_net()
    model.head.weight = nn.Parameter(torch.empty(8, 8))
    bind.bind(version, model)
    assert model.head.weight is not model.embed.weight
    assert model.head.weight.data_ptr() == model.embed.weight.data_ptr()


# ---- modules of all kinds ---------------------------------------------------------------------


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.list = nn.ParameterList([torch.ones(2), torch.ones(3)])
        self.dict = nn.ParameterDict({"a": nn.Parameter(torch.ones(4))})
        self.codes = nn.Parameter(torch.ones(5, dtype=torch.int8), requires_grad=False)
        self.normed = parametrizations.weight_norm(nn.Linear(2, 2))
        self.spectral = parametrizations.spectral_norm(nn.Linear(2, 2))
        self.old = spectral_norm(nn.Linear(2, 2))
        self.older = weight_norm(nn.Linear(2, 2))
        self.rnn = nn.LSTM(2, 2)
        self.again = self.normed
        self.empty = nn.Parameter(torch.empty(0, 3))
        self.scalar = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.older(self.old(self.spectral(self.again(self.normed(x)))))
        found: torch.Tensor = self.rnn(x)[0] * self.scalar + self.list[0] * self.dict["a"][:2]
        return found + self.codes[:2]


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:DeprecationWarning")
def test_modules_of_all_kinds() -> None:
    torch.manual_seed(0)
    ordinary = Odd().eval()
    with init.empty_init():
        model = Odd().eval()
    version = version_of(ordinary)
    result = bind.bind(version, model)
    assert set(result.shared) == {n for n, _ in ordinary.named_parameters(remove_duplicate=False)}
    x = torch.ones(1, 2)
    with torch.no_grad():
        assert torch.equal(model(x), ordinary(x))
    assert "rnn.weight_ih_l0" in bound_names(version, model)
    assert not model.rnn._weights_have_changed()  # type: ignore[no-untyped-call]


def test_a_module_that_owns_nothing_is_refused() -> None:
    with pytest.raises(gpuwm.Invalid, match=r"ReLU has no parameters"):
        bind.bind(version_of(trained()), nn.ReLU())


def test_lazy_parameters_are_refused_by_name() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    version = version_of(nn.Sequential(nn.Linear(2, 3)))
    with pytest.raises(bind.BindError, match=r"lazy: 0.weight"):
        bind.bind(version, model)


@pytest.mark.filterwarnings("ignore:.*quantize.*:UserWarning")
def test_sparse_and_quantised_tensors_are_refused_by_name() -> None:
    model = nn.Module()
    model.sparse = nn.Parameter(torch.eye(2).to_sparse(), requires_grad=False)
    model.register_buffer("codes", torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8))
    version: Any = Version({"sparse": torch.eye(2), "codes": torch.ones(2)})
    with pytest.raises(bind.BindError) as caught:
        bind.bind(version, model)
    assert [p.split(" is a ")[0] for p in caught.value.problems] == [
        "class: sparse",
        "class: codes",
    ]


def test_fake_tensors_are_refused_by_name() -> None:
    with FakeTensorMode():
        model = nn.Linear(2, 3, bias=False)
    with pytest.raises(bind.BindError, match=r"class: weight is a FakeTensor, not plain data"):
        bind.bind(version_of(nn.Linear(2, 3, bias=False)), model)


class Early(nn.Module):
    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("norm", self.weight.detach().norm(), persistent=persistent)


def test_a_buffer_that_was_computed_from_a_parameter() -> None:
    with init.empty_init():
        saved, lost = Early(True), Early(False)
    version = version_of(Early(True))
    bind.bind(version, saved)
    assert saved.norm == version.tensors["norm"]
    with pytest.raises(
        bind.BindError,
        match=r"(?s)no memory: buffer norm .*made it of a parameter.*build the model outside",
    ):
        bind.bind(version_of(Early(False)), lost)
    assert lost.weight.is_meta


def test_an_attribute_that_was_computed_from_a_parameter_is_named() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.inner.largest = self.inner.weight.detach().amax()

    with init.empty_init():
        model = Cached()
    with pytest.raises(bind.BindError, match=r"attribute inner.largest"):
        bind.bind(version_of(Cached()), model)


def test_a_model_that_was_built_on_meta() -> None:
    """A model that was built on meta altogether gets the buffers that the version has."""
    with torch.device("meta"):
        model = Net().eval()
    with pytest.raises(bind.BindError, match=r"no memory: buffer table") as caught:
        bind.bind(version_of(trained()), model)
    assert len(caught.value.problems) == 1
    model.table = torch.arange(8).cos()
    bind.bind(version_of(trained()), model)
    assert torch.equal(model(IDS), trained()(IDS))


def test_a_version_with_private_writes_is_not_guarded() -> None:
    version, model = version_of(trained()), empty_net()
    version.private_writes = True
    bind.bind(version, model)
    assert type(model.hidden.weight) is nn.Parameter
    assert not isinstance(model.hidden.weight, guards.Shared)


def test_nothing_is_kept_alive() -> None:
    version, model = version_of(trained()), empty_net()
    bind.bind(version, model)
    gone = weakref.ref(version), weakref.ref(model), weakref.ref(version.tensors["scale"])
    del version, model
    assert [reference() for reference in gone] == [None, None, None]
