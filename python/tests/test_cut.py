"""A checkpoint that gpuwm cuts by a shipped plan is what torch.narrow makes of the whole."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

import pytest
from conftest import BACKEND, Daemon

import gpuwm
from gpuwm._cuts import Cut

torch = pytest.importorskip("torch")
from safetensors.torch import save_file  # noqa: E402

GPUWMCTL = f"{os.environ['GPUWM_BUILD']}/bin/gpuwmctl"
PLANS = pathlib.Path(f"{os.environ['GPUWM_BUILD']}/share/gpuwm/cuts")
# Each is divisible by 4, and no two are equal, so that a wrong dimension or stride shows.
HIDDEN, INNER, HEADS, KV, VOCABULARY, EXPERTS, LAYERS = 24, 44, 32, 16, 52, 4, 2
# The dimensions that the ranks of a model share, by the end of a module's name. Other tensors are
# copied to all ranks. This is what engines do, and not read from the plans.
SPLIT = {
    **dict.fromkeys(("embed_tokens", "lm_head", "q_proj", "k_proj", "v_proj"), 0),
    **dict.fromkeys(("gate_proj", "up_proj", "w1", "w3"), 0),
    **dict.fromkeys(("o_proj", "down_proj", "w2"), 1),
}
Shapes = dict[str, tuple[int, ...]]


def attention(layer: str, *, biases: bool = False, norms: bool = False) -> Shapes:
    sizes = {"q_proj": HEADS, "k_proj": KV, "v_proj": KV}
    found: Shapes = {f"{layer}.self_attn.{name}.weight": (n, HIDDEN) for name, n in sizes.items()}
    found[f"{layer}.self_attn.o_proj.weight"] = (HIDDEN, HEADS)
    if biases:
        found |= {f"{layer}.self_attn.{name}.bias": (n,) for name, n in sizes.items()}
    if norms:
        found |= {f"{layer}.self_attn.{name}_norm.weight": (8,) for name in "qk"}
    return found


def dense(module: str) -> Shapes:
    return {
        f"{module}.gate_proj.weight": (INNER, HIDDEN),
        f"{module}.up_proj.weight": (INNER, HIDDEN),
        f"{module}.down_proj.weight": (HIDDEN, INNER),
    }


def qwen_experts(layer: str) -> Shapes:
    found: Shapes = {f"{layer}.mlp.gate.weight": (EXPERTS, HIDDEN)}
    for expert in range(EXPERTS):
        found |= dense(f"{layer}.mlp.experts.{expert}")
    return found


def shared_expert(layer: str) -> Shapes:
    gate: Shapes = {f"{layer}.mlp.shared_expert_gate.weight": (1, HIDDEN)}
    return {**gate, **dense(f"{layer}.mlp.shared_expert")}


def mixtral_experts(layer: str) -> Shapes:
    module = f"{layer}.block_sparse_moe"
    found: Shapes = {f"{module}.gate.weight": (EXPERTS, HIDDEN)}
    for expert in range(EXPERTS):
        found[f"{module}.experts.{expert}.w1.weight"] = (INNER, HIDDEN)
        found[f"{module}.experts.{expert}.w3.weight"] = (INNER, HIDDEN)
        found[f"{module}.experts.{expert}.w2.weight"] = (HIDDEN, INNER)
    return found


# What each layer of a family has, by the plan that fits the family: names and shapes as
# transformers writes them.
FAMILIES: dict[str, tuple[str, Any]] = {
    "llama": ("llama", lambda at: {**attention(at), **dense(f"{at}.mlp")}),
    "qwen2": ("qwen", lambda at: {**attention(at, biases=True), **dense(f"{at}.mlp")}),
    "qwen3": ("qwen", lambda at: {**attention(at, norms=True), **dense(f"{at}.mlp")}),
    "qwen2-moe": (
        "qwen",
        lambda at: {**attention(at, biases=True), **qwen_experts(at), **shared_expert(at)},
    ),
    "qwen3-moe": ("qwen", lambda at: {**attention(at, norms=True), **qwen_experts(at)}),
    "mixtral": ("mixtral", lambda at: {**attention(at), **mixtral_experts(at)}),
}


def whole(family: str) -> dict[str, Any]:
    """The tensors of a small checkpoint. No two elements of a tensor are equal."""
    shapes: Shapes = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "lm_head.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for number in range(LAYERS):
        layer = f"model.layers.{number}"
        norms = ("input_layernorm", "post_attention_layernorm")
        shapes |= {f"{layer}.{norm}.weight": (HIDDEN,) for norm in norms}
        shapes |= FAMILIES[family][1](layer)
    found = {}
    for number, (name, shape) in enumerate(sorted(shapes.items())):
        values = torch.arange(torch.Size(shape).numel(), dtype=torch.int16) + 3 * number
        found[name] = values.view(torch.bfloat16).reshape(shape)
    return found


def narrowed(tensors: dict[str, Any], rank: int, world: int) -> dict[str, Any]:
    """What torch makes of the whole for a rank."""
    found = {}
    for name, tensor in tensors.items():
        dim = SPLIT.get(name.split(".")[-2])
        if dim is not None:
            rows = tensor.shape[dim] // world
            tensor = tensor.narrow(dim, rank * rows, rows)
        found[name] = tensor.contiguous()
    return found


def write(folder: pathlib.Path, tensors: dict[str, Any]) -> None:
    """A checkpoint in two files."""
    folder.mkdir()
    where: dict[str, str] = {}
    for number in range(2):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        names = sorted(tensors)[number::2]
        save_file({name: tensors[name] for name in names}, folder / file)
        where |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def described(part: Any) -> dict[str, Any]:
    return {info.name: (info.dtype, info.shape, info.strides) for info in part.infos()}


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_tensor_of_every_rank(daemon: Daemon, family: str, world: int) -> None:
    """A digest covers all bytes of a tensor, so digests tell what lies on any device."""
    tensors, ref = whole(family), f"{family}@cut{world}"
    folder = daemon.models / f"{family}-{world}"
    write(folder, tensors)
    command = [GPUWMCTL, "--socket", str(daemon.folder / "admin.sock"), "load", str(folder), ref]
    command += ["--ranks", str(world), "--cut", FAMILIES[family][0], "--device", daemon.device]
    subprocess.run([*command, "--wait"], check=True, timeout=60)
    for rank in range(world):
        wanted = narrowed(tensors, rank, world)
        by_torch = gpuwm.publish(wanted, f"{family}@torch{world}-{rank}", bind=False, device="host")
        with (
            gpuwm.attach(ref, rank=rank, device=daemon.device) as part,
            gpuwm.attach(by_torch.id, device="host") as expected,
        ):
            assert described(part) == described(expected)
            assert part.digests() == expected.digests()
            if BACKEND == "host":
                for name, tensor in wanted.items():
                    assert torch.equal(bits(part.torch(name)), bits(tensor)), name
            assert part.cuts == cuts(tensors, rank, world)


def test_a_head_is_cut_by_nobody(daemon: Daemon) -> None:
    """A shipped plan asks config.json how many heads there are."""
    folder = daemon.models / "heads"
    write(folder, whole("llama"))
    (folder / "config.json").write_text('{"num_attention_heads": 4, "num_key_value_heads": 2}')
    text = (PLANS / "llama.cut").read_text()
    daemon.load_folder("heads@two", folder, ranks=2, cut=text)
    with pytest.raises(gpuwm.Error, match=r"[kv]_proj.*2 groups \(num_key_value_heads .* 4 ranks"):
        daemon.load_folder("heads@four", folder, ranks=4, cut=text)


def bits(tensor: Any) -> Any:
    return tensor.view(torch.int16)  # no bits of it are a NaN, which differs from itself


def cuts(tensors: dict[str, Any], rank: int, world: int) -> dict[str, Cut]:
    found = {}
    for name, tensor in tensors.items():
        dim = SPLIT.get(name.split(".")[-2])
        if dim is not None:
            rows = tensor.shape[dim] // world
            found[name] = Cut(dim, rank * rows, rows, tuple(tensor.shape))
    return found


def test_each_shipped_plan_was_tried() -> None:
    assert {path.stem for path in PLANS.glob("*.cut")} == {name for name, _ in FAMILIES.values()}
