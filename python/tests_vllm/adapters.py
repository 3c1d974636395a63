"""LoRA adapters on a model that some load format left: what its layers give, and what becomes of
its weights. Imports vLLM: only for processes of engines."""

from __future__ import annotations

import hashlib
import json
import pathlib
from multiprocessing.connection import Connection
from typing import Any

import torch
from safetensors.torch import save_file
from vllm.config import set_current_vllm_config
from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
from vllm.lora.layers import LoRAMapping
from vllm.lora.request import LoRARequest
from vllm.lora.worker_manager import LRUCacheWorkerLoRAManager
from vllm.model_executor.model_loader import get_model

from tests_engines.engines import Job

from . import serving

RANK = 8
PROJECTIONS = ("q_proj", "v_proj", "o_proj")


def write(folder: pathlib.Path, checkpoint: pathlib.Path) -> None:
    """A random adapter for the attention of the checkpoint's model."""
    config = json.loads((checkpoint / "config.json").read_text())
    width, heads = config["hidden_size"], config["num_attention_heads"]
    head = config.get("head_dim") or width // heads
    sizes = {
        "q_proj": (width, heads * head),
        "v_proj": (width, config["num_key_value_heads"] * head),
        "o_proj": (heads * head, width),
    }
    torch.manual_seed(7)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for name, (wide, high) in sizes.items():
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{prefix}.lora_A.weight"] = torch.randn(RANK, wide, dtype=torch.bfloat16)
            tensors[f"{prefix}.lora_B.weight"] = torch.randn(high, RANK, dtype=torch.bfloat16)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    told = {"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, "bias": "none"}
    told |= {"target_modules": [*PROJECTIONS], "task_type": "CAUSAL_LM"}
    (folder / "adapter_config.json").write_text(json.dumps(told))


def serve(pipe: Connection, job: Job, checkpoint: str, adapter: str) -> None:
    """Sends the digests of a layer's output without and with the adapter, and of all weights before
    and after."""
    if not pathlib.Path(adapter).exists():
        write(pathlib.Path(adapter), pathlib.Path(checkpoint))
    config = serving._config(job)
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"file://{job.meet}", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)
        model = get_model(vllm_config=config)
        before = _weights(model)
        manager = LRUCacheWorkerLoRAManager(config, torch.device("cpu"), model.embedding_modules)
        wrapped: Any = manager.create_lora_manager(model, config)
        layer = wrapped.model.layers[0].self_attn.o_proj
        outputs = [_output(manager, layer, adapter, number) for number in (0, 1)]
    pipe.send((*outputs, before, _weights(wrapped)))


def _output(manager: Any, layer: Any, adapter: str, number: int) -> str:
    requests = {LoRARequest("adapter", number, adapter)} if number else set()
    ids = (number,) * 3
    manager.set_active_adapters(requests, LoRAMapping(ids, ids, is_prefill=True))
    return _digest(layer(torch.ones(3, layer.base_layer.input_size, dtype=torch.bfloat16))[0])


def _weights(model: torch.nn.Module) -> dict[str, str]:
    return {
        name.replace(".base_layer", ""): _digest(parameter)
        for name, parameter in model.named_parameters()
    }


def _digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.detach().float().numpy().tobytes()).hexdigest()
