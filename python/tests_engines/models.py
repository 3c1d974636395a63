"""Small random models, written as checkpoints that vLLM loads."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

# Divisible by 16, which fp8 layers ask for, and by two ranks.
SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS: dict[str, Any] = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}


def _write(
    folder: pathlib.Path, seed: int, model: type[Any], config: transformers.PretrainedConfig
) -> None:
    torch.manual_seed(seed)
    model(config).to(torch.bfloat16).save_pretrained(folder)


def dense(folder: pathlib.Path, seed: int = 0, **changed: Any) -> None:
    config = transformers.LlamaConfig(tie_word_embeddings=False, **{**SMALL, **changed})
    _write(folder, seed, transformers.LlamaForCausalLM, config)


def tied(folder: pathlib.Path, seed: int = 0) -> None:
    """The output layer is the embedding."""
    config = transformers.LlamaConfig(tie_word_embeddings=True, **SMALL)
    _write(folder, seed, transformers.LlamaForCausalLM, config)


def redundant(folder: pathlib.Path, seed: int = 0, differs: bool = False) -> None:
    """The output layer is the embedding, says config.json, and the file has both, as tools for
    fine-tuning write it."""
    dense(folder, seed)
    tensors = load_file(folder / "model.safetensors")
    if not differs:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))


def contradicting(folder: pathlib.Path, seed: int = 0) -> None:
    """Likewise, and the two differ."""
    redundant(folder, seed, differs=True)


def biased(folder: pathlib.Path, seed: int = 0) -> None:
    """Qwen2, whose attention has biases."""
    config = transformers.Qwen2Config(tie_word_embeddings=False, **SMALL)
    _write(folder, seed, transformers.Qwen2ForCausalLM, config)


def lonely(folder: pathlib.Path, seed: int = 0) -> None:
    """One head of keys and values for all ranks, and a vocabulary that vLLM pads."""
    dense(folder, seed, num_key_value_heads=1, vocab_size=250)


def mixtral(folder: pathlib.Path, seed: int = 0) -> None:
    config = transformers.MixtralConfig(
        num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=False, **SMALL
    )
    _write(folder, seed, transformers.MixtralForCausalLM, config)


def experts(folder: pathlib.Path, seed: int = 0) -> None:
    config = transformers.Qwen3MoeConfig(
        num_experts=4, tie_word_embeddings=False, **EXPERTS, **{**SMALL, "head_dim": 16}
    )
    _write(folder, seed, transformers.Qwen3MoeForCausalLM, config)


def latent(folder: pathlib.Path, seed: int = 0) -> None:
    """Multi-head latent attention: vLLM keeps views of one weight as plain attributes."""
    config = transformers.DeepseekV2Config(
        n_routed_experts=4,
        n_shared_experts=1,
        first_k_dense_replace=1,
        n_group=1,
        topk_group=1,
        kv_lora_rank=32,
        q_lora_rank=32,
        qk_nope_head_dim=16,
        qk_rope_head_dim=16,
        v_head_dim=16,
        **EXPERTS,
        **{**SMALL, "num_key_value_heads": 4},
    )
    _write(folder, seed, transformers.DeepseekV2ForCausalLM, config)


def fp8(folder: pathlib.Path, seed: int = 0) -> None:
    """A dense model that was quantised before it was saved, with one scale for each matrix."""
    dense(folder, seed)
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    largest = torch.finfo(torch.float8_e4m3fn).max
    tensors = {}
    for name, tensor in model.state_dict().items():
        if "_proj." not in name:
            tensors[name] = tensor.clone()
            continue
        scale = tensor.float().abs().max() / largest
        tensors[name] = (tensor.float() / scale).to(torch.float8_e4m3fn)
        tensors[f"{name}_scale"] = scale.reshape(1)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    (folder / "config.json").write_text(json.dumps(config))


MODELS: dict[str, Callable[..., None]] = {
    "dense": dense,
    "biased": biased,
    "lonely": lonely,
    "mixtral": mixtral,
    "tied": tied,
    "redundant": redundant,
    "contradicting": contradicting,
    "experts": experts,
    "latent": latent,
    "fp8": fp8,
}


def write_all(folder: pathlib.Path) -> None:
    """A checkpoint of each kind, in a folder named for the kind, and one of the same layout with
    other values, in a folder with `-2` behind the name: their files' headers are equal."""
    for name, write in MODELS.items():
        write(folder / name)
        write(folder / f"{name}-2", seed=1)
