"""Writes into shared memory that raise by name, and what they leave as it is."""

from __future__ import annotations

import copy
import io
import pathlib
import pickle
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from binding_models import Net, trained, version_of
from conftest import run_python
from torch import nn
from torch._dynamo import utils as dynamo_utils
from torch._functorch import config as functorch
from torch._inductor import config as inductor
from torch.nn.utils import parametrizations, spectral_norm

from gpuwm._torch import bind, guards, init

IDS = torch.arange(4)


def bound_net(**options: Any) -> Net:
    with init.empty_init():
        model = Net().eval()
    version = version_of(trained())
    bind.bind(version, model, **options)
    return model


def _merge(model: Net) -> None:
    model.hidden.weight.data += torch.ones(8, 8)  # as adapters are merged


WRITES: dict[str, Callable[[Net], Any]] = {
    "in place": lambda m: m.hidden.weight.add_(1),
    "operator": lambda m: m.hidden.weight.__iadd__(1),
    "item": lambda m: m.hidden.weight.__setitem__(0, 1),
    "data": lambda m: m.hidden.weight.data.mul_(2),
    "merge": _merge,
    "initialise": lambda m: nn.init.normal_(m.hidden.weight),
    "copy": lambda m: m.hidden.weight.copy_(torch.ones(8, 8)),
    "detached": lambda m: m.hidden.weight.detach().zero_(),
    "state_dict": lambda m: m.state_dict()["hidden.weight"].zero_(),
    "load_state_dict": lambda m: m.load_state_dict(trained(1).state_dict()),
    "requires_grad_": lambda m: m.hidden.weight.requires_grad_(),
    "requires_grad": lambda m: setattr(m.hidden.weight, "requires_grad", True),
    "module": lambda m: m.hidden.requires_grad_(True),
    "parameter": lambda m: nn.Parameter(m.hidden.weight.data),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_write_raises_and_names_the_parameter(write: Callable[[Net], Any]) -> None:
    model = bound_net()
    before = model.hidden.weight.clone()
    refused = pytest.raises((guards.WriteError, RuntimeError), match=r"hidden.weight")
    with refused as caught, torch.no_grad():
        write(model)
    assert "private=['hidden.weight']" in str(caught.value)
    assert torch.equal(model.hidden.weight, before)


def test_all_methods_that_write_are_refused() -> None:
    parameter = bound_net().hidden.weight
    for name in ("uniform_", "clamp_", "index_add_", "scatter_", "resize_", "set_", "__imul__"):
        with pytest.raises(guards.WriteError, match=name):
            getattr(parameter, name)(0)
    assert parameter.requires_grad_(False) is parameter
    assert parameter.share_memory_() is parameter  # type: ignore[no-untyped-call]
    assert not parameter.requires_grad


def test_an_optimizer_does_not_step_over_shared_parameters() -> None:
    model = bound_net(private=["head.weight"])
    model.head.weight.requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    model(IDS).sum().backward()
    before = model.head.weight.clone()
    optimizer.step()  # the private one
    assert not torch.equal(model.head.weight, before)
    model.hidden.bias.grad = torch.ones(8)
    with pytest.raises(guards.WriteError, match=r"SGD.step\(\) .* hidden.bias"):
        optimizer.step()


def test_shared_running_statistics_refuse_training() -> None:
    model = bound_net(share_buffers=["norm.*"])
    expected = trained()(IDS)
    assert torch.equal(model(IDS), expected)
    model.train()
    with pytest.raises(guards.WriteError, match=r"BatchNorm1d writes into norm.running_mean"):
        model(IDS)
    assert torch.equal(model.eval()(IDS), expected)
    private = bound_net()
    private.train()(IDS)  # its own


def test_other_modules_that_write_in_training_refuse_it() -> None:
    def norm() -> nn.Module:
        return nn.InstanceNorm1d(3, track_running_stats=True)

    def spectral() -> nn.Module:
        return parametrizations.spectral_norm(nn.Linear(3, 3))

    def old_spectral() -> nn.Module:
        return spectral_norm(nn.Linear(3, 3))

    for make, buffer in ((norm, "running_mean"), (spectral, "_u"), (old_spectral, "weight_u")):
        ordinary = make().eval()
        with init.empty_init():
            model = make().eval()
        bind.bind(version_of(ordinary), model, share_buffers=True)
        x = torch.ones(2, 3, 3)
        with torch.no_grad():
            assert torch.equal(model(x), ordinary(x))
            model.train()
            with pytest.raises(guards.WriteError, match=buffer):
                model(x)


def test_a_custom_module_that_writes_into_a_shared_buffer_is_told() -> None:
    class Counts(nn.Module):
        calls: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self) -> None:
            self.calls += 1

    model = Counts()
    bind.bind(version_of(Counts()), model, share_buffers=True)
    with pytest.raises(guards.WriteError, match=r"calls"):
        model()


def test_an_embedding_that_renormalises_is_refused_at_bind() -> None:
    for kind in (nn.Embedding, nn.EmbeddingBag):
        model, version = kind(4, 4, max_norm=1.0), version_of(kind(4, 4))
        with pytest.raises(bind.BindError, match=r"max_norm=1.0 writes into weight"):
            bind.bind(version, model)
        bind.bind(version, model, private=["weight"])
        model(torch.arange(4)[None])


# ---- what stays as it is ----------------------------------------------------------------------


def test_a_shallow_copy_is_guarded_too() -> None:
    model = bound_net()
    weight = model.hidden.weight
    weight.mark = "kept"  # type: ignore[attr-defined]
    copied: Any = copy.copy(weight)
    assert (type(copied), copied.data_ptr(), copied.mark) == (
        type(weight),
        weight.data_ptr(),
        "kept",
    )
    with pytest.raises(guards.WriteError):
        copied.add_(1)
    assert copy.copy(model).hidden.weight is weight


def test_a_copy_is_private() -> None:
    model = bound_net(share_buffers=True)
    copied = copy.deepcopy(model)
    assert type(copied.hidden.weight) is nn.Parameter
    assert type(copied.scale) is torch.Tensor
    assert copied.head.weight is copied.embed.weight
    with torch.no_grad():
        copied.hidden.weight.add_(1)
    copied.train()(IDS)
    copied.hidden.weight.requires_grad_(True)


def test_files_have_bytes_and_no_class_of_ours() -> None:
    model = bound_net(share_buffers=True)
    expected = model(IDS)
    whole, state = io.BytesIO(), io.BytesIO()
    torch.save(model.state_dict(), state)
    state.seek(0)
    loaded = torch.load(state, weights_only=True)
    assert {type(tensor) for tensor in loaded.values()} == {torch.Tensor}
    plain = Net().eval()
    plain.load_state_dict(loaded)
    assert torch.equal(plain(IDS), expected)
    for module in model.modules():
        module._forward_pre_hooks.clear()
    torch.save(model, whole)
    assert b"gpuwm" not in whole.getvalue()
    again = pickle.loads(pickle.dumps(model.hidden.weight))
    assert type(again) is nn.Parameter
    assert torch.equal(again, model.hidden.weight)
    made = nn.Parameter(model.hidden.weight.data, requires_grad=False)
    for parameter in (made, copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert isinstance(parameter, nn.Parameter)
        assert torch.equal(parameter, model.hidden.weight)


def test_other_memory_ends_the_guard() -> None:
    model = bound_net()
    model.hidden.weight.data = torch.ones(8, 8)
    assert type(model.hidden.weight) is nn.Parameter
    model.hidden.weight.data += 1
    model.to("cpu")
    assert isinstance(model.hidden.bias, guards.Shared)
    model.double()
    assert {type(parameter) for parameter in model.parameters()} == {nn.Parameter}
    model.hidden.bias.data.zero_()


def test_a_parameter_without_gradient_can_be_made_of_it() -> None:
    model = bound_net()
    for source in (model.hidden.weight, model.hidden.weight.data):
        made = nn.Parameter(source, requires_grad=False)
        assert isinstance(made, nn.Parameter)
        assert made.data_ptr() == model.hidden.weight.data_ptr()


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own
def test_compiled_exported_and_traced_as_ever() -> None:
    class Reads(nn.Module):
        def __init__(self, net: Net) -> None:
            super().__init__()
            self.net = net

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            weight = self.net.hidden.weight.data + self.net.hidden.weight.detach()
            found: torch.Tensor = self.net(ids) @ weight
            return found

    model = Reads(bound_net(share_buffers=True))
    expected = model(IDS)
    for backend in ("eager", "aot_eager"):
        for context in (torch.enable_grad, torch.inference_mode):
            torch.compiler.reset()
            compiled = torch.compile(model, backend=backend, fullgraph=True)
            with context():
                assert torch.equal(compiled(IDS), expected)
    exported = torch.export.export(model.net, (IDS,)).module()
    assert torch.equal(exported(IDS), model.net(IDS))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's compiler needs one for C++")
def test_torch_finds_what_it_compiled(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's caches have keys that name the classes of parameters. Where it can't find a class by
    its name, vLLM's ranks get keys from equal random numbers, and run each other's code (pytorch
    issue 191323)."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    counted = dynamo_utils.counters["aot_autograd"]
    counted.clear()
    one_process = inductor.patch(compile_threads=1)
    caches = functorch.patch(enable_autograd_cache=True)
    with torch.inference_mode(), one_process, caches:
        torch.compile(bound_net(), fullgraph=True)(IDS)
        torch.compiler.reset()
        torch.compile(bound_net(), fullgraph=True)(IDS)
    assert counted["autograd_cache_bypass"] == 0
    assert (counted["autograd_cache_miss"], counted["autograd_cache_hit"]) == (1, 1)


def test_pickle_finds_a_shared_class_by_its_name() -> None:
    for plain in (torch.Tensor, nn.Parameter, nn.UninitializedParameter):
        kind = guards.shared_class(plain)
        for dumps in (pickle.dumps, pickle._dumps):  # type: ignore[attr-defined]  # C, Python
            assert pickle.loads(dumps(kind)) is kind


@pytest.mark.parametrize("name", ["Shared_no_dot_Such", "Shared_torch_dot_Such", "Shared_", "such"])
def test_names_that_no_class_has_are_missing(name: str) -> None:
    with pytest.raises(AttributeError, match=f"'{name}'"):
        getattr(guards, name)


AHEAD_OF_TIME = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from test_guards import IDS, bound_net

with open(sys.argv[2], "rb") as file:
    compiled = torch.compiler.load_compiled_function(file)
model = bound_net()
assert torch.equal(compiled(model, IDS), model(IDS))
"""


def test_the_next_process_loads_what_was_compiled_ahead_of_time(tmp_path: pathlib.Path) -> None:
    compiled: Any = torch.compile(bound_net().forward, backend="eager", fullgraph=True)
    saved = tmp_path / "compiled"
    compiled.aot_compile(((IDS,), {})).save_compiled_function(str(saved))
    assert b"gpuwm" in saved.read_bytes()  # it names the classes
    run_python(AHEAD_OF_TIME, str(pathlib.Path(__file__).parent), str(saved))


def test_a_subclass_of_parameter_is_guarded_and_stays_one() -> None:
    class Special(nn.Parameter):
        __slots__ = ("width",)
        width: int

    model = nn.Module()
    model.weight = Special(torch.zeros(2))
    model.weight.width = 3
    version = version_of(model)
    bind.bind(version, model)
    assert isinstance(model.weight, Special)
    with pytest.raises(guards.WriteError):
        model.weight.zero_()
    for copied in (copy.copy(model.weight), copy.deepcopy(model.weight)):
        assert copied.width == model.weight.width == 3
    assert type(copied) is Special
