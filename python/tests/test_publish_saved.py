"""What a model saves besides parameters and buffers: publish refuses it by name, or carries it."""

from __future__ import annotations

import enum
import itertools
import json
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import saved_models
import torch
from conftest import Daemon, by_torch
from other_processes import Peer
from saved_models import Int8, Quantised, Recipe
from torch import nn

import gpuwm
import gpuwm.image
from gpuwm._torch import extra_state
from gpuwm._torch.bind import bind

pytestmark = by_torch

X = torch.ones(1, 4)
FILE = extra_state.FILE


_counted = itertools.count()


@pytest.fixture
def ref(daemon: Daemon) -> str:
    """The name of a version of the test's own."""
    return f"saved-{next(_counted)}@v1"


def refusal(model: Any, bind: bool = False) -> str:
    with pytest.raises(gpuwm.Unsupported) as caught:
        gpuwm.publish(model, "refused@v1", bind=bind)  # type: ignore[call-overload]
    return str(caught.value)


# ---- tensors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bind", [False, True])
def test_a_tensor_that_only_state_dict_has_is_refused(daemon: Daemon, bind: bool) -> None:
    """As bitsandbytes' Linear8bitLt saves SCB, and its Linear4bit what is in quant_state, which
    nothing loads (bitsandbytes#1946)."""
    model = nn.Sequential(nn.Linear(4, 4), Int8(1))
    said = refusal(model, bind)
    assert "1.scale: Int8 saves torch.float32 [4] that is no parameter or buffer" in said
    assert "0." not in said


def test_numbers_that_a_layer_saves_as_tensors_are_refused(daemon: Daemon) -> None:
    """As scale and zero_point of torch's quantised layers, which a fresh model lacks
    (pytorch/vision#2562, pytorch#21925)."""
    said = refusal(nn.Sequential(Quantised(3)))
    assert "0.scale: Quantised saves torch.float32 []" in said
    assert "0.zero_point: Quantised saves torch.int64 []" in said
    assert "0.dtype: Quantised saves a dtype that is no parameter or buffer: return it" in said


def test_the_remedies_carry_it(ref: str, peer: Peer) -> None:
    want = Int8(1)(X)
    state = Int8(1).state_dict()
    gpuwm.publish(dict(state), ref, bind=False)
    gpuwm.image.publish(Int8(1), f"image-{ref}")
    buffered = Int8(1)
    scale = buffered.scale
    del buffered.scale
    buffered.register_buffer("scale", scale)
    gpuwm.publish(buffered, f"buffered-{ref}", bind=False)
    peer.run(
        "import gpuwm.image; from saved_models import Int8; one, two, three = map(Int8, [2]*3)"
    )
    peer.run("one.load_state_dict(gpuwm.attach(ref).state_dict())", ref=ref)
    peer.run("done = gpuwm.image.install(two, 'image-' + ref)")
    peer.run("scale = three.scale; del three.scale; three.register_buffer('scale', scale)")
    peer.run("done = gpuwm.attach('buffered-' + ref).bind(three)")
    for name in ("one", "two", "three"):
        assert torch.equal(peer.run(f"{name}(x)", x=X), want), name


HUNG: dict[str, tuple[Callable[[], Any], str]] = {
    "array": (lambda: np.ones(4, np.float32), "0.weight.scale"),
    "module": (lambda: nn.Linear(2, 2, bias=False), "0.weight.scale.weight"),
    "array in a dict": (lambda: {"zeros": np.zeros(2)}, "0.weight.scale['zeros']"),
}


@pytest.mark.parametrize("kind", HUNG)
def test_arrays_and_modules_on_a_parameter_are_refused(daemon: Daemon, kind: str) -> None:
    made, path = HUNG[kind]
    layer: Any = nn.Linear(4, 4)
    layer.weight.scale = made()
    assert f"that holds more tensors ({path})" in refusal(nn.Sequential(layer))


def test_parameters_of_the_model_may_hang_on_each_other(ref: str) -> None:
    def make() -> Any:
        layer: Any = nn.Linear(4, 4)
        layer.weight.layer, layer.bias.other = layer, layer.weight
        return nn.Sequential(layer)

    gpuwm.publish(make(), ref)
    made = gpuwm.build(ref, make)
    assert made[0].bias.other is made[0].weight


def test_an_object_with_tensors_on_a_parameter_is_refused(ref: str) -> None:
    """As Params4bit's quant_state, one of whose tensors is easily left behind (bitsandbytes#1527).
    An image carries it."""

    def make(scale: float) -> Any:
        layer: Any = nn.Linear(4, 4)
        layer.weight.quant_state = types.SimpleNamespace(code=torch.full((2,), scale), bits=4)
        return nn.Sequential(layer)

    said = refusal(make(1.0))
    assert "0.weight: a Parameter that holds more tensors (0.weight.quant_state.code)" in said
    assert "publish the model with gpuwm.image" in said
    gpuwm.image.publish(make(1.0), ref)
    fresh = make(2.0)
    gpuwm.image.install(fresh, ref)
    assert fresh[0].weight.quant_state.code.eq(1).all()


def test_a_copy_stands_for_one_tensor_only(daemon: Daemon) -> None:
    """A scale of ones is not the norm's weight."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
            destination[prefix + "scale"] = torch.ones(4)
            destination[prefix + "weight"] = self.weight.detach().clone()

    assert "norm.scale: Scaled saves" in refusal(nn.ModuleDict({"norm": Scaled()}))


def renamed(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    for key in list(state):
        state[f"{prefix}base_layer.{key.removeprefix(prefix)}"] = state.pop(key).clone().half()


def split(module: Any, state: dict[str, Any], prefix: str, _: Any) -> None:
    """As checkpoints of the original implementation have it."""
    weight = state.pop(prefix + "0.weight")
    state |= {f"{prefix}{key}": part for key, part in zip("qk", weight.chunk(2), strict=True)}


def dropped(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("hook", [renamed, split, dropped])
def test_a_hook_that_adds_nothing_is_no_problem(ref: str, hook: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model._register_state_dict_hook(hook)  # type: ignore[no-untyped-call]
    gpuwm.publish(model, ref, bind=False)
    assert sorted(gpuwm.attach(ref)) == ["0.bias", "0.weight", "1.bias", "1.weight"]


def test_a_hook_that_adds_a_tensor_is_refused(daemon: Daemon) -> None:
    def merged(module: Any, state: dict[str, Any], prefix: str, _: Any) -> None:
        state[f"{prefix}merged"] = module[0].weight @ module[0].weight

    model = nn.Sequential(nn.Linear(4, 4))
    model.register_state_dict_post_hook(merged)  # type: ignore[no-untyped-call]
    assert "\n  merged: Sequential saves torch.float32 [4, 4]" in refusal(model)


@pytest.fixture
def group() -> Iterator[None]:
    store: Any = vars(torch.distributed)["HashStore"]()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_no_hook_is_called_that_could_wait_for_other_ranks(ref: str) -> None:
    """As FSDP's gather the shards of all ranks."""
    calls: list[str] = []

    def gathered(module: Any, state: dict[str, Any], prefix: str, _: Any) -> None:
        calls.append(prefix)

    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_state_dict_post_hook(gathered)  # type: ignore[no-untyped-call]
    assert "0.: the hook test_no_hook" in (said := refusal(model))
    assert "publish the result with bind=False" in said
    assert not calls
    gpuwm.publish(dict(model.state_dict()), ref, bind=False)
    assert sorted(gpuwm.attach(ref)) == ["0.bias", "0.weight"]
    assert calls == ["0."]


# ---- extra states ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", saved_models.STATES)
def test_an_extra_state_comes_back_in_another_process(ref: str, peer: Peer, kind: str) -> None:
    """As those of TransformerEngine, which from_pretrained lost (transformers#38154), and which a
    converted checkpoint of Megatron lacked (RLinf#266)."""
    state = saved_models.STATES[kind]
    model = nn.Sequential(Recipe(1, state))
    gpuwm.publish(model, ref)
    assert saved_models.same(model[0].get_extra_state(), state)
    peer.run("import saved_models; from saved_models import Recipe, STATES, same")
    peer.run("made = gpuwm.build(ref, lambda: torch.nn.Sequential(Recipe(2, 'fresh')))", ref=ref)
    assert peer.run("same(made[0].state, STATES[kind])", kind=kind)


def test_an_extra_state_with_other_objects_is_refused(ref: str) -> None:
    recipe = Recipe(1, {"scaler": [0.5, object()]})
    model = nn.Sequential(recipe)
    said = refusal(model)
    assert "0._extra_state['scaler'][1]: a object, which is none of plain values, bytes, t" in said
    recipe.state = {"scaler": 0.5}
    gpuwm.publish(model, ref, bind=False)
    fresh = Recipe(2, None)
    gpuwm.attach(ref).bind(nn.Sequential(fresh))
    assert fresh.state == {"scaler": 0.5}


def test_a_module_that_a_model_has_twice_has_one_extra_state(ref: str) -> None:
    def make(state: Any) -> nn.Module:
        shared = Recipe(1, state)
        return nn.Sequential(shared, nn.Identity(), shared)

    gpuwm.publish(make("published"), ref)
    made: Any = gpuwm.build(ref, lambda: make("fresh"))
    assert made[0] is made[2]
    assert made[0].state == "published"


def test_an_extra_state_that_nobody_takes_is_refused(daemon: Daemon) -> None:
    class Telling(nn.Linear):
        def get_extra_state(self) -> Any:
            return 1

    assert "0._extra_state: no module has a set_extra_state" in refusal(
        nn.Sequential(Telling(4, 4))
    )


def test_extra_states_are_limited(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra_state, "TEXT_BYTES", 100)
    said = refusal(nn.ModuleDict({"a": Recipe(1, b""), "b": Recipe(1, bytes(200))}))
    assert "b._extra_state: the extra states take 3" in said
    assert "may take 100: make its tensors buffers" in said


def test_a_model_without_the_module_is_told(ref: str) -> None:
    gpuwm.publish(nn.Sequential(Recipe(1, b"x")), ref, bind=False)
    mapping = gpuwm.attach(ref)
    plain = nn.Sequential(nn.ModuleDict({"inner": nn.Linear(4, 4)}))
    with pytest.raises(gpuwm.BindError, match=r"unexpected: the model has no 0\._extra_state"):
        mapping.bind(plain)
    result = mapping.bind(plain, strict=False)
    assert result.unexpected == ("0._extra_state",)


def without_states(model: nn.Module) -> dict[str, Any]:
    return {name: each for name, each in model.state_dict().items() if "inner" in name}


def test_an_extra_state_that_the_version_lacks_is_named(ref: str) -> None:
    """A checkpoint without them, which torch's load_state_dict refuses, and which a trainer resumed
    from with the states of a fresh module (NVIDIA-NeMo/Automodel#3814)."""
    gpuwm.publish(without_states(Recipe(1, b"x")), ref, bind=False)
    mapping, recipe = gpuwm.attach(ref), Recipe(2, b"fresh")
    with pytest.raises(gpuwm.BindError, match=r"missing: the version has no _extra_state"):
        mapping.bind(recipe)
    assert mapping.bind(recipe, strict=False).missing == ("_extra_state",)
    assert recipe.state == b"fresh"


def test_a_switch_warns_of_extra_states_that_stay(ref: str) -> None:
    one, two, model = (nn.ModuleDict({"a": Recipe(seed, b"1")}) for seed in (1, 2, 3))
    gpuwm.publish(one, ref, bind=False)
    second = ref.replace("v1", "v2")
    gpuwm.publish(without_states(two), second, bind=False)
    mapping = gpuwm.attach(ref)
    mapping.bind(model)
    with pytest.warns(RuntimeWarning, match=r"has no a\._extra_state: .*keeps that of .*v1"):
        mapping.switch(second)


def test_names_are_for_extra_states_too(ref: str) -> None:
    gpuwm.publish(nn.ModuleDict({"a": Recipe(1, b"x")}), ref, bind=False)
    recipe = Recipe(2, b"y")
    model = nn.ModuleDict({"b": recipe})
    names: dict[str, str | None] = {
        f"a.{key}": f"b.{key}" for key in ("inner.weight", "inner.bias", "_extra_state")
    }
    mapping = gpuwm.attach(ref)
    bind(mapping, model, strict=False, names={**names, "a._extra_state": None})
    assert recipe.state == b"y"
    bind(mapping, model, names=names)
    assert recipe.state == b"x"


def test_a_module_that_refuses_its_state_leaves_the_model_as_it_was(ref: str) -> None:
    gpuwm.publish(nn.ModuleDict({"a": Recipe(1, b"x"), "b": Recipe(1, "refuse")}), ref, bind=False)
    a, b = Recipe(2, b"y"), Recipe(2, b"z")
    with pytest.raises(ValueError, match="no such state"):
        gpuwm.attach(ref).bind(nn.ModuleDict({"a": a, "b": b}))
    assert (a.state, b.state) == (b"y", b"z")
    assert a.inner.weight.eq(2).all()
    with torch.no_grad():
        a.inner.weight.add_(1)  # it is the model's own


def test_a_state_dict_has_extra_states(ref: str) -> None:
    """Tensors stay among the tensors, where load_state_dict finds them."""
    model = nn.ModuleDict({"a": Recipe(1, b"x"), "b": Recipe(1, torch.arange(3))})
    gpuwm.publish(dict(model.state_dict()), ref, bind=False)
    mapping = gpuwm.attach(ref)
    assert "b._extra_state" in mapping
    a, b = Recipe(2, None), Recipe(2, None)
    assert mapping.bind(nn.ModuleDict({"a": a, "b": b})).unexpected == ()
    assert a.state == b"x"
    assert torch.equal(b.state, torch.arange(3))


@pytest.mark.parametrize("call", ["switch", "exchange"])
def test_a_switch_gives_the_extra_states_of_the_next_version(ref: str, call: str) -> None:
    for tag, states in (("v1", (b"1", torch.zeros(2))), ("v2", (b"2", torch.ones(2)))):
        model = nn.ModuleDict({"a": Recipe(1, states[0]), "b": Recipe(1, states[1])})
        gpuwm.publish(dict(model.state_dict()), ref.replace("v1", tag), bind=False)
    a, b = Recipe(2, None), Recipe(2, None)
    mapping = gpuwm.attach(ref)
    mapping.bind(nn.ModuleDict({"a": a, "b": b}))
    assert a.state == b"1"
    if call == "switch":
        mapping.switch(ref.replace("v1", "v2"))
    else:
        mapping.exchange(gpuwm.attach(ref.replace("v1", "v2")))
    assert a.state == b"2"
    assert torch.equal(b.state, torch.ones(2))


def test_the_name_of_the_file_is_taken(daemon: Daemon) -> None:
    with pytest.raises(gpuwm.Invalid, match=f"files= has {FILE}"):
        gpuwm.publish(Recipe(1, b"x"), "taken@v1", files={FILE: b""})


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"schema":1}',
        b'{"schema":1,"states":{"_extra_state":1}}',
        b'{"schema":1,"states":{"_extra_state":{"state":{"bytes":"?"}}}}',
        b'{"schema":1,"states":{"_extra_state":{"state":{"data":["uint8",[9],"AAAA"]}}}}',
        b'{"schema":1,"states":{"_extra_state":{"state":{"data":["x",[3],"AAAA"]}}}}',
        b'{"schema":1,"states":{"_extra_state":{"state":{"dict":[[{"list":[]},1]]}}}}',
        b'{"schema":1,"states":{"_extra_state":{"state":{"pickle":"AAAA"}}}}',
    ],
)
def test_a_damaged_file(ref: str, text: bytes) -> None:
    model = Recipe(1, None)
    tensors = {name: tensor for name, tensor in model.state_dict().items() if tensor is not None}
    gpuwm.publish(tensors, ref, bind=False, files={FILE: text})
    with pytest.raises(gpuwm.Damaged, match=f"{FILE} of .* is damaged.*under another tag"):
        gpuwm.attach(ref).bind(model)


def test_a_file_of_a_newer_gpuwm(ref: str) -> None:
    text = json.dumps({"schema": 2, "states": {}}).encode()
    gpuwm.publish({"weight": X}, ref, bind=False, files={FILE: text})
    with pytest.raises(gpuwm.Unsupported, match="has the schema 2, and this gpuwm reads 1"):
        gpuwm.attach(ref).bind(nn.Linear(4, 1, bias=False))


def test_an_enum_that_is_not_imported(ref: str) -> None:
    class Local(enum.Enum):
        ONE = 1

    gpuwm.publish(Recipe(1, Local.ONE), ref, bind=False)
    with pytest.raises(gpuwm.Unsupported, match="Local, which this process has not imported"):
        gpuwm.attach(ref).bind(Recipe(2, None))
