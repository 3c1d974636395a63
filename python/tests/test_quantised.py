"""Quantised checkpoints of transformers: a refusal by name, and remedies that compute the same.

Reported in public: bitsandbytes 1123 (a 4-bit model as transformers saved it), transformers 40327
(the same in several files), unslothai/unsloth 6978 and Lightricks/LTX-2 172 (fp8 weights without
their scales: nothing fails, and the answers are wrong).
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import packed_linear
import pytest
import safetensors.torch
import torch
from conftest import Daemon, on_host

import gpuwm
import gpuwm.image
import gpuwm.transformers

transformers: Any = importlib.import_module("transformers")  # half of it has no types
quantizers: Any = importlib.import_module("transformers.quantizers.auto")
AutoModelForCausalLM = transformers.AutoModelForCausalLM

pytestmark = on_host

CHILD_S = 300
BLOCK = 32
CONFIG = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
IDS = [[5, 3, 9, 60, 2, 7]]
# What a model answers that another process has published, and what of it is not shared.
ANSWER = f"""
import sys, torch, gpuwm.transformers, packed_linear
ref, answer = sys.argv[1:]
model = gpuwm.transformers.from_pretrained(ref)
found = gpuwm.mapping_of(model).check(model)
own = [name for name in (*found.private, *found.lost) if "rotary" not in name]
with torch.no_grad():
    torch.save((model(torch.tensor({IDS})).logits, own), answer)
"""


class Method(NamedTuple):
    """A way to quantise: the name in gpuwm's error, the package that it needs, and what writes a
    checkpoint."""

    name: str
    package: str | None
    save: Callable[[Any, pathlib.Path], None]


def by_transformers(make: Callable[[], Any]) -> Callable[[Any, pathlib.Path], None]:
    """transformers quantises the model, and saves it in several files."""

    def save(plain: Any, folder: pathlib.Path) -> None:
        plain.save_pretrained(folder / "plain")
        options = {"quantization_config": make()}
        made = AutoModelForCausalLM.from_pretrained(folder / "plain", **options)
        made.save_pretrained(folder, max_shard_size="40KB")

    return save


def by_hand(
    config: dict[str, Any], quantise: Callable[[torch.Tensor], dict[str, torch.Tensor]]
) -> Callable[[Any, pathlib.Path], None]:
    """transformers reads such a checkpoint, and other programs write it."""

    def save(plain: Any, folder: pathlib.Path) -> None:
        plain.save_pretrained(folder)
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        for name in [name for name in tensors if name.endswith("proj.weight")]:
            for suffix, tensor in quantise(tensors.pop(name)).items():
                tensors[name.removesuffix("weight") + suffix] = tensor
        safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        change(folder, quantization_config=config)

    return save


def change(folder: pathlib.Path, **changed: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def fp8_in_blocks(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    rows, columns = (size // BLOCK for size in weight.shape)
    blocks = weight.reshape(rows, BLOCK, columns, BLOCK)
    scale = blocks.abs().amax((1, 3)) / 448
    small = (blocks / scale[:, None, :, None]).reshape(weight.shape).to(torch.float8_e4m3fn)
    return {"weight": small, "weight_scale_inv": scale}


def fp8_in_rows(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    scale = weight.abs().amax(1, keepdim=True) / 448
    return {"weight": (weight / scale).to(torch.float8_e4m3fn), "weight_scale": scale}


def in_groups(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes of four bits, and a scale and a zero for each group of columns; all transposed."""
    rows = weight.shape[0]
    groups = weight.T.reshape(-1, BLOCK, rows)
    low, high = groups.amin(1, keepdim=True), groups.amax(1, keepdim=True)
    scales = ((high - low) / 15).half().float()
    zeros = (-low / scales).round().clamp(1, 15)
    codes = (groups / scales + zeros).round().clamp(0, 15)
    return codes.reshape(-1, rows).long(), scales[:, 0].half(), zeros[:, 0].long()


def packed(codes: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """Eight codes of a row in an integer. order: which of them has the lowest bits, and so on."""
    eights = codes.reshape(len(codes), -1, 8)[..., list(order)]
    made = (eights << torch.arange(0, 32, 4)).sum(2)
    return torch.where(made >= 1 << 31, made - (1 << 32), made).to(torch.int32)


def as_gptq(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """The first format of GPTQ, whose zeros are less by one."""
    codes, scales, zeros = in_groups(weight)
    return {
        "qweight": packed(codes.T, range(8)).T.contiguous(),
        "qzeros": packed(zeros - 1, range(8)),
        "scales": scales,
        "g_idx": torch.arange(len(codes), dtype=torch.int32) // BLOCK,
    }


def as_awq(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    codes, scales, zeros = in_groups(weight)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return {"qweight": packed(codes, order), "qzeros": packed(zeros, order), "scales": scales}


def as_packed_quantized(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    rows = len(weight)
    groups = weight.reshape(rows, -1, BLOCK)
    scales = groups.abs().amax(2, keepdim=True) / 7
    codes = (groups / scales).round().clamp(-8, 7).long() + 8
    return {
        "weight_packed": packed(codes.reshape(rows, -1), range(8)),
        "weight_scale": scales[..., 0],
        "weight_shape": torch.tensor(weight.shape),
    }


def torchao(name: str) -> Callable[[], Any]:
    def make() -> Any:
        config = getattr(importlib.import_module("torchao.quantization"), name)
        return transformers.TorchAoConfig(config())

    return make


FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"},
        }
    },
}
INTEGERS = {
    **COMPRESSED,
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4,
                "type": "int",
                "symmetric": True,
                "strategy": "group",
                "group_size": BLOCK,
            },
        }
    },
}
# Kernels of torch alone: the fastest ones for CPUs are compiled for 100 s when they are first used.
GPTQ = {
    "quant_method": "gptq",
    "bits": 4,
    "group_size": BLOCK,
    "desc_act": False,
    "sym": False,
    "backend": "gptq_torch",
}
REPACKED = {**GPTQ, "backend": "gptq_torch_aten"}  # into another layout, after loading
AWQ = {
    "quant_method": "awq",
    "bits": 4,
    "group_size": BLOCK,
    "zero_point": True,
    "version": "gemm",
    "backend": "torch_awq",
}
METHODS = {
    "bitsandbytes, 4 bit": Method(
        "bitsandbytes",
        "bitsandbytes",
        by_transformers(
            lambda: transformers.BitsAndBytesConfig(
                load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True
            )
        ),
    ),
    "bitsandbytes, 8 bit": Method(
        "bitsandbytes",
        "bitsandbytes",
        by_transformers(lambda: transformers.BitsAndBytesConfig(load_in_8bit=True)),
    ),
    "torchao, int8": Method("torchao", "torchao", by_transformers(torchao("Int8WeightOnlyConfig"))),
    "torchao, fp8": Method(
        "torchao", "torchao", by_transformers(torchao("Float8WeightOnlyConfig"))
    ),
    "compressed-tensors, fp8": Method(
        "compressed-tensors", "compressed_tensors", by_hand(COMPRESSED, fp8_in_rows)
    ),
    "compressed-tensors, integers": Method(
        "compressed-tensors", "compressed_tensors", by_hand(INTEGERS, as_packed_quantized)
    ),
    "fp8 in blocks": Method("fp8", None, by_hand(FP8, fp8_in_blocks)),
    "GPTQ": Method("gptq", "gptqmodel", by_hand(GPTQ, as_gptq)),
    "GPTQ, repacked": Method("gptq", "gptqmodel", by_hand(REPACKED, as_gptq)),
    "AWQ": Method("awq", "gptqmodel", by_hand(AWQ, as_awq)),
    # As those two, without a package.
    "packed integers": Method("packed", None, by_hand(packed_linear.CONFIG, packed_linear.pack)),
}


def plain_model() -> Any:
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**CONFIG, tie_word_embeddings=False)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def quantised(daemon: Daemon, kind: str) -> tuple[str, pathlib.Path]:
    """A version, and its folder."""
    method = METHODS[kind]
    if method.package is not None:
        pytest.importorskip(method.package)
    name = kind.replace(",", "").replace(" ", "-")
    folder = daemon.models / name
    folder.mkdir()
    method.save(plain_model(), folder)
    daemon.load_folder(f"{name}@v1", folder)
    return f"{name}@v1", folder


def answer_of(ref: str, tmp_path: pathlib.Path) -> tuple[torch.Tensor, list[str]]:
    """What the model answers in another process, and the names of its parameters that are not
    shared there."""
    out = tmp_path / "answer.pt"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", ANSWER, ref, str(out)]
    subprocess.run(words, check=True, timeout=CHILD_S, env=environment)
    found: tuple[torch.Tensor, list[str]] = torch.load(out)
    return found


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")  # of optimum
@pytest.mark.filterwarnings("ignore:Exception ignored in. <finalize")  # gptqmodel's folders
@pytest.mark.parametrize("kind", METHODS)
def test_the_remedy_of_a_refusal_shares_the_memory(
    daemon: Daemon, tmp_path: pathlib.Path, kind: str
) -> None:
    """The lines that the error prints are run as they stand: one process loads and publishes, and
    another one answers the same, in every bit."""
    ref, original = quantised(daemon, kind)
    with pytest.raises(gpuwm.Unsupported, match=rf"quantised \({METHODS[kind].name}\)") as error:
        gpuwm.transformers.from_pretrained(ref)
    lines = [line.strip() for line in str(error.value).split("\n") if line.startswith("  ")]
    assert len(lines) == 4
    known: dict[str, Any] = {
        "gpuwm": gpuwm,
        "AutoModelForCausalLM": AutoModelForCausalLM,
        "ref": ref,
        "folder": str(tmp_path / "saved"),
    }
    name = ref.replace("@v1", "@image")
    for line in lines[:3]:
        exec(line.replace("name@tag", name), known)
    assert lines[3] == 'model = gpuwm.transformers.from_pretrained("name@tag")'
    model = AutoModelForCausalLM.from_pretrained(original)
    with torch.no_grad():
        expected = model(torch.tensor(IDS)).logits
    found, own = answer_of(name, tmp_path)
    assert torch.equal(found, expected)
    assert own == []


def test_shared_buffers_of_an_image_are_refused(daemon: Daemon) -> None:
    model = plain_model()
    gpuwm.image.publish(model, "plain@image", files=gpuwm.transformers.files(model))
    with pytest.raises(gpuwm.Invalid, match="whose buffers are private"):
        gpuwm.transformers.from_pretrained("plain@image", share_buffers=True)
    found = gpuwm.transformers.from_pretrained("plain@image")
    assert gpuwm.image.differences(model.eval(), found) == []


def test_a_method_that_transformers_lacks_here_is_named(daemon: Daemon) -> None:
    model = plain_model()
    model.config.quantization_config = {"quant_method": "aqlm"}
    gpuwm.image.publish(model, "lacking@image", files=gpuwm.transformers.files(model))
    with pytest.raises(gpuwm.Unsupported, match=r"quantised \(aqlm\), and transformers can't make"):
        gpuwm.transformers.from_pretrained("lacking@image")


MADE_PLAIN: dict[str, Callable[[], Any]] = {
    "fp8 in blocks": dict,  # transformers does so by itself where it finds no GPU
    "compressed-tensors, fp8": lambda: {
        "quantization_config": transformers.CompressedTensorsConfig(dequantize=True)
    },
}


@pytest.mark.filterwarnings("ignore:You passed `quantization_config`")
@pytest.mark.parametrize("kind", MADE_PLAIN)
def test_what_transformers_made_plain_is_published_and_bound(
    daemon: Daemon, tmp_path: pathlib.Path, kind: str
) -> None:
    package = METHODS[kind].package
    if package is not None:
        pytest.importorskip(package)
    folder = tmp_path / "made-plain"
    METHODS[kind].save(plain_model(), folder)
    model = AutoModelForCausalLM.from_pretrained(folder, **MADE_PLAIN[kind]())
    assert not getattr(model, "is_quantized", False)  # some models lack the attribute
    with torch.no_grad():
        expected = model(torch.tensor(IDS)).logits
    name = f"made-plain@{list(MADE_PLAIN).index(kind)}"
    gpuwm.publish(model, name, files=gpuwm.transformers.files(model))
    found, own = answer_of(name, tmp_path)
    assert torch.equal(found, expected)
    assert own == []


@pytest.mark.parametrize("method", sorted(quantizers.AUTO_QUANTIZATION_CONFIG_MAPPING))
def test_every_method_of_transformers_is_refused_by_name(
    checkpoint: Callable[..., str], method: str
) -> None:
    """GPTQ, AWQ and all others, whether or not their packages are there."""
    config = {"model_type": "llama", "quantization_config": {"quant_method": method}}
    ref = checkpoint({"x": ("F32", (1,), bytes(4))}, {"config.json": json.dumps(config).encode()})
    with pytest.raises(gpuwm.Unsupported, match=rf"is quantised \({method}\)"):
        gpuwm.transformers.from_pretrained(ref)


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_fp8_weights_are_never_bound_without_their_scales(
    daemon: Daemon, tmp_path: pathlib.Path, dtype: str | None
) -> None:
    """A config that names no quantisation, as of checkpoints that other programs write."""
    name = f"scales-{dtype}"
    METHODS["fp8 in blocks"].save(plain_model(), daemon.models / name)
    change(daemon.models / name, quantization_config=None, dtype=dtype)
    daemon.load_folder(f"{name}@v1", daemon.models / name)
    with pytest.raises(gpuwm.Error, match="float8_e4m3fn"):
        gpuwm.transformers.from_pretrained(f"{name}@v1")
