"""Attributes of vLLM's modules that are not weights: tensors that a forward pass writes into, and
settings of how one engine computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

# Tensors that are plain attributes. An image would share them read-only, but kernels or models
# write into them at each step. By the name of the attribute, in any object.
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

# These say how one engine runs a module. They follow from that engine's compilation_config, which
# the keys of versions leave out. So each engine keeps what its own constructors chose.
_IGNORED = {
    "_forward_method": "CustomOp: forward_native or that of the platform, by custom_ops and mode",
    "use_aiter": "RotaryEmbedding: by custom_ops False or None, both of which mean no, but on ROCm",
    # @support_torch_compile
    "do_not_compile": "whether the mode compiles; if so there are the others",
    "_dynamic_arg_dims": "for torch.compile",
    "was_aot_compile_fn_loaded_from_disk": "the compiler's cache",
    "compiled": "whether the first call was",
    "aot_compiled_fn": "the compiled function",
    "_aot_compilation_path": "a path of the compiler's cache",
    "_aot_cache_dir": "likewise",
    # TorchCompileWithNoGuardsWrapper
    "_compile_tag": "for the compiler's log",
    "_compile_prefix": "for the compiler's cache",
    "_is_encoder": "for the compiler's cache",
    "layerwise_nvtx_tracing_enabled": "how calls are traced",
    "first_compile": "whether the first call was",
    "evaluate_guards": "for torch.compile",
    "_compiled_callable": "what torch.compile made",
    "_bytecode_hook_handle": "of torch._dynamo",
    "_compiled_bytecode": "what torch._dynamo made",
    # What loaders hang on parameters. No forward pass reads it.
    "weight_loader": "loads a checkpoint's tensor into the parameter",
    "_weight_loader": "likewise, of BasevLLMParameter",
    "_packed_factor": "how many values an element has, for loaders: an int or a Fraction",
}


def _anywhere(names: Iterable[str], items: bool = False) -> Iterator[str]:
    """Globs of `gpuwm.image` for an attribute of any object, also of the model itself. items: also
    for what a list with that name holds."""
    for name in names:
        yield from (name, f"*.{name}")
        if items:
            yield from (f"{name}[[]*", f"*.{name}[[]*")


WRITTEN = tuple(_anywhere(_WRITTEN, items=True))
IGNORED = tuple(_anywhere(_IGNORED))
