"""Parameters of which a process has only a part, as FSDP makes them of a model."""

from __future__ import annotations

import torch

REMEDY = (
    "let all ranks call torch.distributed.checkpoint.state_dict.get_model_state_dict(model, "
    "options=StateDictOptions(full_state_dict=True, cpu_offload=True)), and publish what rank 0 "
    "gets, with bind=False"
)
BEFORE = "sharded: bind the model before FSDP wraps it"


def said(tensor: torch.Tensor) -> str | None:
    """What such a tensor is, or None for all others. It waits for no other rank."""
    for base in type(tensor).__mro__:
        if base.__module__.startswith("torch.distributed."):  # DTensor, ShardedTensor
            return f"a {base.__name__}, of which each rank has a part"
    # FSDP1 marks what it flattens; its class is torch's own. The modules hold views of it, which
    # raise when they are asked for more (is_leaf).
    flat = tensor if tensor._base is None else tensor._base
    if getattr(flat, "_is_flat_param", False) or getattr(tensor, "_fsdp_flattened", False):
        return "a part of FSDP's flat parameter, of which each rank has a part"
    return None
