"""Checkpoints with random weights, as transformers writes them, and a LoRA adapter.

models.py FOLDER NAME...      makes those that are not there, on the GPU where there is one"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from typing import Any

SHARD = "4GB"
RANK, ALPHA = 16, 32  # of the adapters
COMMON = {"vocab_size": 128256, "max_position_embeddings": 32768, "tie_word_embeddings": False}
HEADS = {"num_attention_heads": 32, "num_key_value_heads": 8, "bos_token_id": 1, "eos_token_id": 2}
# dense: 8.0 billion parameters; moe: 4.2 billion, of them 3.6 in 64 experts a layer.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": (
        "Llama",
        {
            **COMMON,
            **HEADS,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
        },
    ),
    "small": (
        "Llama",
        {
            **COMMON,
            **HEADS,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
        },
    ),
    "tiny": (
        "Llama",
        {
            **HEADS,
            "vocab_size": 2048,
            "hidden_size": 2048,
            "intermediate_size": 4096,
            "num_hidden_layers": 2,
        },
    ),
    "moe": (
        "Qwen3Moe",
        {
            **COMMON,
            **HEADS,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "moe_intermediate_size": 768,
        }
        | {"num_hidden_layers": 12, "num_experts": 64, "num_experts_per_tok": 8, "head_dim": 64},
    ),
    "tinymoe": (
        "Qwen3Moe",
        {
            **HEADS,
            "vocab_size": 2048,
            "hidden_size": 2048,
            "intermediate_size": 2048,
            "moe_intermediate_size": 512,
        }
        | {"num_hidden_layers": 2, "num_experts": 8, "num_experts_per_tok": 2, "head_dim": 64},
    ),
}
# Which rows of lm_head are zero: with greedy decoding each token tells which of these computed it,
# as a maximum over random rows is above 0. Nothing else differs.
HALVES = {"half-1": "upper", "half-2": "lower"}
MODELS |= dict.fromkeys(HALVES, MODELS["small"])
ADAPTERS = {"tiny-lora": "tiny", "small-lora": "small"}  # and their models


def make(folder: pathlib.Path, name: str) -> None:
    """A folder of that name, complete with a file `complete`, which counts its parameters."""
    import torch
    import transformers

    path = folder / name
    if (path / "complete").exists():
        return
    begin = time.monotonic()
    if name in ADAPTERS:
        parameters = make_adapter(path, MODELS[ADAPTERS[name]][1])
    else:
        kind, entries = MODELS[name]
        torch.manual_seed(sum(("half" if name in HALVES else name).encode()))
        torch.set_default_dtype(torch.bfloat16)
        config = getattr(transformers, f"{kind}Config")(**entries)
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            model = getattr(transformers, f"{kind}ForCausalLM")(config)
        if name in HALVES:
            middle = len(model.lm_head.weight) // 2
            rows = slice(middle, None) if HALVES[name] == "upper" else slice(middle)
            with torch.no_grad():
                model.lm_head.weight[rows] = 0
        parameters = sum(parameter.numel() for parameter in model.parameters())
        model.save_pretrained(path, max_shard_size=SHARD)
        del model
    (path / "complete").write_text(f"{parameters}\n")
    print(
        f"  {name}: {parameters / 1e9:.3f} billion parameters, {time.monotonic() - begin:.1f} s",
        flush=True,
    )


def make_adapter(path: pathlib.Path, entries: dict[str, Any]) -> int:
    """A LoRA adapter of the attention's and the MLP's projections in PEFT's format. Both factors
    are random, so it changes every answer."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(99)
    width, inner = entries["hidden_size"], entries["intermediate_size"]
    head = width // entries["num_attention_heads"]
    narrow = head * entries["num_key_value_heads"]
    sizes = {
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (width, narrow),
        "self_attn.v_proj": (width, narrow),
        "self_attn.o_proj": (width, width),
        "mlp.gate_proj": (width, inner),
        "mlp.up_proj": (width, inner),
        "mlp.down_proj": (inner, width),
    }
    tensors = {}
    for layer in range(entries["num_hidden_layers"]):
        for module, (taken, given) in sizes.items():
            name = f"base_model.model.model.layers.{layer}.{module}"
            tensors[f"{name}.lora_A.weight"] = (torch.randn(RANK, taken) * 0.02).bfloat16()
            tensors[f"{name}.lora_B.weight"] = (torch.randn(given, RANK) * 0.02).bfloat16()
    path.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": ALPHA,
        "bias": "none",
        "task_type": "CAUSAL_LM",
    }
    config |= {
        "target_modules": [module.rpartition(".")[2] for module in sizes],
        "base_model_name_or_path": "",
    }
    (path / "adapter_config.json").write_text(json.dumps(config))
    return sum(tensor.numel() for tensor in tensors.values())


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or [*MODELS, *ADAPTERS]:
        make(folder, name)


if __name__ == "__main__":
    main()
