"""Attributes of vLLM's modules that are no weights: those that a forward pass writes into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

# Tensors that are plain attributes, which an image would share read-only, and which kernels or
# models write into at each step. By name of the attribute, wherever it is.
_WRITTEN = {
    "workspace": "Marlin's kernels keep locks there; the layer or the kernel object has it",
    "_workspace_buf": "CUTLASS MLA's scratch memory, which one object has for all layers",
    "topk_indices_buffer": "sparse attention: the indexer writes what the attention reads",
    "deepstack_input_embeds": "Qwen3-VL and Qwen3-Omni: features of a step's images, in a list",
    "_ds_buffers": "Granite 4 Vision: likewise",
    "per_layer_embeddings": "Gemma 3n and 4 with images: inputs of each layer",
    "positions": "Gemma 3n and 4 with shared KV: inputs of the second half, for CUDA graphs",
    "hidden_states": "likewise",
    "per_layer_inputs": "likewise",
}


def _anywhere(names: Iterable[str], items: bool = False) -> Iterator[str]:
    """Globs of `gpuwm.image` for an attribute of any object, of the model itself too. items: also
    for what a list of that name holds."""
    for name in names:
        yield from (name, f"*.{name}")
        if items:
            yield from (f"{name}[[]*", f"*.{name}[[]*")


WRITTEN = tuple(_anywhere(_WRITTEN, items=True))
