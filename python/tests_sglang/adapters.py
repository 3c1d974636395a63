"""LoRA adapters, as SGLang's ModelRunner loads them beside a model."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import torch
from safetensors.torch import save_file

RANK = 4
_tensor = torch.tensor
LAYER = "base_model.model.model.layers.0.self_attn.o_proj"


def write(folder: pathlib.Path, hidden_size: int) -> None:
    """An adapter of one layer."""
    shapes = {"lora_A": (RANK, hidden_size), "lora_B": (hidden_size, RANK)}
    tensors = {f"{LAYER}.{name}.weight": torch.ones(shape) for name, shape in shapes.items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 8, "target_modules": ["o_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps({**config, "task_type": "CAUSAL_LM"}))


def load(
    model: torch.nn.Module, model_config: Any, load_config: Any, server_args: Any, folder: str
) -> str:
    """Puts the adapter beside the model, for the next step. Returns the backend of its kernels."""
    from sglang.srt.lora.lora_manager import LoRAManager
    from sglang.srt.lora.lora_registry import LoRARef

    def unpinned(*arguments: Any, pin_memory: bool = False, **named: Any) -> torch.Tensor:
        return _tensor(*arguments, **named)

    torch.tensor = unpinned  # without an accelerator no memory can be pinned
    adapter = LoRARef(lora_name="a", lora_path=folder, pinned=False)
    manager = LoRAManager(
        base_model=model,
        base_hf_config=model_config.hf_config,
        max_loras_per_batch=2,
        load_config=load_config,
        dtype=torch.bfloat16,
        server_args=server_args,
        lora_backend="torch_native",
        lora_paths=[adapter],
    )
    manager.fetch_new_loras({None, adapter.lora_id})
    return str(manager.lora_backend.name)
