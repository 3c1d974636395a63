"""gpuwm.empty_init: what has no memory, what is as it would be, and what happens too early."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import pytest
import torch
from binding_models import Net
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrizations

import gpuwm
from gpuwm._torch import init


def test_parameters_have_no_memory_and_buffers_are_computed() -> None:
    with init.empty_init():
        model = Net()
    plain = Net()
    assert all(parameter.is_meta for parameter in model.parameters())
    for name, buffer in plain.named_buffers():
        assert torch.equal(model.get_buffer(name), buffer), name
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in plain.named_parameters()]
    for mine, ordinary in zip(model.parameters(), plain.parameters(), strict=True):
        assert (mine.shape, mine.dtype, mine.stride()) == (
            ordinary.shape,
            ordinary.dtype,
            ordinary.stride(),
        )
        assert type(mine) is nn.Parameter
        assert mine.requires_grad


def test_what_has_memory_is_filled() -> None:
    class Fills(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(2))
            self.register_buffer("ones", nn.init.ones_(torch.empty(2)))
            self.threes = torch.zeros(2).add_(1).mul_(3)
            nn.init.constant_(tensor=self.weight, val=2)

    with init.empty_init():
        model = Fills()
    assert model.get_buffer("ones").tolist() == [1, 1]
    assert model.threes.tolist() == [3, 3]
    assert model.weight.is_meta


def test_the_peak_is_one_parameter() -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most = 0

    class Layer(nn.Module):
        def __init__(self) -> None:
            nonlocal most
            super().__init__()
            memory = torch.empty(1000)
            alive.add(memory.untyped_storage())
            self.weight = nn.Parameter(memory)
            del memory
            most = max(most, len(alive))

    with init.empty_init():
        kept = [Layer() for _ in range(10)]
    assert most <= 1
    assert len(kept) == 10


def test_a_parameter_stays_the_same_object() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            shared = nn.Parameter(torch.ones(3))
            shared.note = "mine"  # type: ignore[attr-defined]
            self.a = shared
            self.b = nn.Linear(3, 1)
            self.b.bias = shared
            self.same = self.a is shared and self.b.bias is shared

    with init.empty_init():
        model = Tied()
    assert model.same
    assert model.a is model.b.bias
    assert model.a.is_meta
    assert vars(model.a)["note"] == "mine"


def test_lists_dictionaries_integers_and_parametrizations() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.list = nn.ParameterList([torch.ones(2), torch.ones(3)])
            self.dict = nn.ParameterDict({"a": nn.Parameter(torch.ones(4))})
            self.codes = nn.Parameter(torch.ones(5, dtype=torch.int8), requires_grad=False)
            self.normed = parametrizations.weight_norm(nn.Linear(2, 2))
            self.none = nn.Linear(2, 2, bias=False)
            nn.init.orthogonal_(self.none.weight)

    with init.empty_init():
        model = Odd()
    assert {name for name, _ in model.named_parameters()} == {
        *("list.0", "list.1", "dict.a", "codes", "normed.bias", "none.weight"),
        *(f"normed.parametrizations.weight.original{i}" for i in (0, 1)),
    }
    assert all(parameter.is_meta for parameter in model.parameters())
    assert model.codes.dtype is torch.int8
    assert not model.codes.requires_grad


def test_a_subclass_of_parameter_stays_one() -> None:
    class Special(nn.Parameter):
        pass

    module = nn.Module()
    with init.empty_init():
        module.weight = Special(torch.ones(2))
    assert type(module.weight) is Special
    assert module.weight.is_meta


def test_it_ends_with_the_context_and_nests() -> None:
    with init.empty_init():
        with init.empty_init():
            inner = nn.Linear(2, 2)
        outer = nn.Linear(2, 2)
    after = nn.Linear(2, 2)
    with pytest.raises(ZeroDivisionError), init.empty_init():
        raise ZeroDivisionError
    assert inner.weight.is_meta
    assert outer.weight.is_meta
    assert not after.weight.is_meta
    assert not torch_module._global_parameter_registration_hooks
    assert not torch_module._global_module_registration_hooks


def test_other_threads_are_not_affected() -> None:
    made: list[nn.Linear] = []
    with init.empty_init():
        thread = threading.Thread(target=lambda: made.append(nn.Linear(2, 2)))
        thread.start()
        thread.join()
    assert not made[0].weight.is_meta


def test_a_parameter_that_others_refer_to_weakly_is_named() -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weight = nn.Parameter(torch.ones(1))
            self.reference = weakref.ref(weight)
            self.weight = weight

    with pytest.raises(gpuwm.Unsupported, match="weight of Held"), init.empty_init():
        Held()


def test_lazy_modules_are_left_alone() -> None:
    with init.empty_init():
        model = nn.LazyLinear(3)
    assert isinstance(model.weight, nn.UninitializedParameter)


def test_a_call_before_bind_names_the_parameter() -> None:
    with init.empty_init():
        model = Net()
        with_list = nn.Module()
        with_list.weights = nn.ParameterList([torch.ones(1)])
    with pytest.raises(init.Unbound, match=r"embed.weight of Net and \d more") as caught:
        model(torch.arange(3))
    assert "bind" in caught.value.detail
    with pytest.raises(init.Unbound, match=r"weight of Linear"):
        model.hidden(torch.ones(1, 8))
    with pytest.raises(init.Unbound, match=r"weights.0 of Module"):
        with_list(1)


def test_shapes_are_worked_out_on_meta() -> None:
    with init.empty_init():
        model = nn.Linear(3, 5)
    assert model(torch.ones(2, 3, device="meta")).shape == (2, 5)


def test_memory_that_came_another_way_is_seen() -> None:
    with init.empty_init():
        model = nn.Sequential(nn.Linear(2, 2))
    model.load_state_dict(nn.Sequential(nn.Linear(2, 2)).state_dict(), assign=True)
    assert model(torch.ones(1, 2)).shape == (1, 2)
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    "needs",
    [
        lambda weight: weight.sum().item(),
        lambda weight: bool((weight > 0).all()),
        lambda weight: weight.detach().numpy(),
        lambda weight: weight + torch.ones(2, device="cpu"),
        lambda weight: weight.detach().nonzero(),
        lambda weight: torch.Generator(device=weight.device),
        lambda weight: f"{weight.sum():.3f}",
        lambda weight: weight.detach().__dlpack__(),
        lambda weight: torch.equal(weight, weight),
    ],
)
def test_init_that_needs_values_says_what_to_do(needs: Any) -> None:
    class Needs(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2)
            needs(self.weight)

    with (
        pytest.raises(
            gpuwm.Unsupported, match=r"(?s)asked a parameter for values.*outside of empty_init"
        ),
        init.empty_init(),
    ):
        Needs()
    with pytest.raises(RuntimeError, match="^its own$"), init.empty_init():
        raise RuntimeError("its own")


@pytest.mark.parametrize(
    "computes",
    [
        lambda weight: torch.eye(2) @ weight,
        lambda weight: nn.functional.linear(torch.eye(2), weight),
        lambda weight: torch.eye(2).div_(weight.norm()),
        lambda weight: torch.eye(2).add_(weight),
        lambda weight: torch.arange(4)[weight[0].long()],
    ],
)
def test_what_torch_computes_of_no_values_without_an_error_is_refused(computes: Any) -> None:
    """torch 2.13 returns whatever was in memory."""

    class Computes(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2)
            self.register_buffer("made", computes(self.weight.detach()))

    with (
        pytest.raises(gpuwm.Unsupported, match="(?s)of a parameter.*outside of empty_init"),
        init.empty_init(),
    ):
        Computes()


def test_what_takes_a_shape_of_a_parameter_is_as_usual() -> None:
    class Shapes(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2)
            self.made = [
                torch.arange(4.0).view_as(self.weight),
                torch.arange(2.0).expand_as(self.weight),
                torch.zeros_like(self.weight, device="cpu"),
                self.weight.new_ones(2, device="cpu"),
            ]

    with init.empty_init():
        model = Shapes()
    for made, ordinary in zip(model.made, Shapes().made, strict=True):
        assert torch.equal(made, ordinary)
