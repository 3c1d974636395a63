"""What SGLang's modules refer to that is not weights: objects of the engine, and tensors that a
forward pass writes into."""

from __future__ import annotations

# Objects that belong to the engine, and not to the model.
OPAQUE = (
    "sglang.srt.server_args.*",
    "sglang.srt.distributed.*",
    "sglang.srt.runtime_context.*",
    "sglang.srt.configs.*",
    "transformers.configuration_utils.*",
)

# Tensors that an image would share read-only, but kernels or models write into them at each step.
# By the name of the attribute, in any object.
_WRITTEN = {
    "workspace": "Marlin's kernels keep locks there",
    "deepstack_input_embeds": "Qwen3-VL: features of a step's images",
}
WRITTEN = tuple(glob for name in _WRITTEN for glob in (name, f"*.{name}", f"*.{name}[[]*"))

# These say how one engine runs a module. Each engine keeps what its own constructors chose.
_IGNORED = {
    "_forward_method": "MultiPlatformOp: forward_native or that of the platform",
    "_original_forward_method": "likewise, while torch.compile is entered",
    "is_torch_compile": "likewise",
    "routed_experts_weights_of_layer": "for EPLB, which is refused",
    # What loaders hang on parameters. No forward pass reads it.
    "weight_loader": "loads a checkpoint's tensor into the parameter",
    "_weight_loader": "likewise, of BasevLLMParameter",
    "_packed_factor": "how many values an element has, for loaders: an int or a Fraction",
}
IGNORED = tuple(glob for name in _IGNORED for glob in (name, f"*.{name}"))

# Attributes that SGLang writes when it has loaded weights: torch's mode, and whether weights of
# experts were padded. An engine that attaches does not load weights.
WRITTEN_BY_LOADING = frozenset({"training", "use_padded_loading"})
