"""Models of the families, quantisations and consumers that publish, attach and bind, made small
from configurations. The test's process and another one make the same."""

from __future__ import annotations

import copy
import hashlib
import importlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import safetensors.torch
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, weight_norm

transformers: Any = importlib.import_module("transformers")  # half of it has no types

IDS = torch.tensor([[5, 3, 9, 60, 2, 7]])
TEXT = {"input_ids": IDS}
PAIR = {"input_ids": IDS, "decoder_input_ids": IDS.flip(1)}
SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
HEADS = {**GROUPED, "head_dim": 8}
GPT = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
SEQ2SEQ = {
    "vocab_size": 64,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
}
T5 = {
    "vocab_size": 64,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
PICTURE = {**SMALL, "image_size": 16, "patch_size": 8}
PIXELS = {"pixel_values": torch.linspace(-1, 1, 3 * 16 * 16).view(1, 3, 16, 16)}
SPEECH = {
    "conv_dim": (16, 16),
    "conv_kernel": (8, 4),
    "conv_stride": (4, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "mask_time_prob": 0.0,
}
WAVE = {"input_values": torch.linspace(-1, 1, 400).view(1, 400)}
TOWERS = {"text_config": SMALL, "vision_config": PICTURE, "projection_dim": 16}

# kind: its configuration's class, its class, arguments, what it is called with
Family = tuple[str, str, Mapping[str, Any], Mapping[str, torch.Tensor]]
CAUSAL: dict[str, Mapping[str, Any]] = {
    "Llama": GROUPED,
    "Qwen2": {**GROUPED, "tie_word_embeddings": True},
    "Qwen3": HEADS,
    "Mistral": GROUPED,
    "Gemma": HEADS,
    "Gemma2": HEADS,
    "Gemma3Text": HEADS,
    "Phi": SMALL,
    "Phi3": GROUPED,
    "StableLm": GROUPED,
    "Cohere": GROUPED,
    "Olmo2": GROUPED,
    "Starcoder2": GROUPED,
    "GPT2": GPT,
    "GPTNeoX": SMALL,
    "GPTJ": {**GPT, "rotary_dim": 4},
    "OPT": {**SMALL, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "Bloom": {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "Falcon": SMALL,
    "Mixtral": {**GROUPED, "num_local_experts": 4},
    "Olmoe": {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2},
    "Qwen2Moe": {
        **GROUPED,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
        "num_experts": 4,
    },
    "DeepseekV3": {
        **SMALL,
        "moe_intermediate_size": 16,
        "n_routed_experts": 4,
        "n_group": 2,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "kv_lora_rank": 8,
        "q_lora_rank": 8,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
    },
    "Mamba": {"vocab_size": 64, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2},
}
_CAUSAL_CLASSES = {"GPT2": "GPT2LMHeadModel", "Gemma3Text": "Gemma3ForCausalLM"}
FAMILIES: dict[str, Family] = {
    **{
        kind: (f"{kind}Config", _CAUSAL_CLASSES.get(kind, f"{kind}ForCausalLM"), options, TEXT)
        for kind, options in CAUSAL.items()
    },
    "T5": ("T5Config", "T5ForConditionalGeneration", T5, PAIR),
    "Bart": ("BartConfig", "BartForConditionalGeneration", SEQ2SEQ, PAIR),
    "Marian": ("MarianConfig", "MarianMTModel", {**SEQ2SEQ, "pad_token_id": 0}, PAIR),
    "Whisper": (
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        {**SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 16, "pad_token_id": 0},
        {"input_features": torch.linspace(-1, 1, 256).view(1, 8, 32), "decoder_input_ids": IDS},
    ),
    "Wav2Vec2": (
        "Wav2Vec2Config",
        "Wav2Vec2ForCTC",
        {**SMALL, **SPEECH, "do_stable_layer_norm": True},
        WAVE,
    ),
    "Hubert": ("HubertConfig", "HubertModel", {**SMALL, **SPEECH}, WAVE),
    "ViT": ("ViTConfig", "ViTModel", PICTURE, PIXELS),
    "Dinov2": ("Dinov2Config", "Dinov2Model", {**PICTURE, "mlp_ratio": 2}, PIXELS),
    "CLIP": ("CLIPConfig", "CLIPModel", TOWERS, {**TEXT, **PIXELS}),
    "SigLIP": (
        "SiglipConfig",
        "SiglipModel",
        {"text_config": SMALL, "vision_config": PICTURE},
        {**TEXT, **PIXELS},
    ),
    "Bert": ("BertConfig", "BertForMaskedLM", SMALL, TEXT),
    "Roberta": ("RobertaConfig", "RobertaForMaskedLM", SMALL, TEXT),
    "Deberta-v2": (
        "DebertaV2Config",
        "DebertaV2ForMaskedLM",
        {**SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        TEXT,
    ),
    "DistilBert": (
        "DistilBertConfig",
        "DistilBertModel",
        {"vocab_size": 64, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
        TEXT,
    ),
}


def family(kind: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    config, model, options, _ = FAMILIES[kind]
    made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**options))
    return made.to(dtype)


# ---- other modules -----------------------------------------------------------------------------


class Scaled(nn.Module):
    """A linear layer whose weight has few bits, with a scale for each row."""

    weight: torch.Tensor
    scale: torch.Tensor

    def __init__(self, dtype: torch.dtype, as_parameter: bool = False) -> None:
        super().__init__()
        weight = torch.randn(16, 16)
        scale = weight.abs().amax(1, keepdim=True) / 127
        packed = (weight / scale).to(dtype)
        if as_parameter:
            self.weight = nn.Parameter(packed, requires_grad=False)
        else:
            self.register_buffer("weight", packed)
        self.register_buffer("scale", scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.weight.float() * self.scale).t()


class Packed(nn.Module):
    """Two values of four bits in a byte, and the order of the groups, as in GPTQ's checkpoints."""

    qweight: torch.Tensor
    g_idx: torch.Tensor
    scales: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("qweight", torch.randint(0, 256, (16, 8), dtype=torch.uint8))
        self.register_buffer("g_idx", torch.arange(16) // 4)
        self.register_buffer("scales", torch.rand(4, 16).half())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = torch.stack((self.qweight & 15, self.qweight >> 4), 2).view(16, 16).float() - 8
        return x @ (whole * self.scales.float()[self.g_idx])


class Lora(nn.Module):
    """A linear layer, and what was learned besides."""

    def __init__(self, base: nn.Module, features: int = 16) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.ModuleDict({"default": nn.Linear(features, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, features, bias=False)})

    def zeroed(self) -> Lora:
        """As before the first step: it answers what its base does."""
        nn.init.zeros_(self.lora_B.get_parameter("default.weight"))
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        learned: torch.Tensor = self.lora_B["default"](self.lora_A["default"](x))
        answer: torch.Tensor = self.base_layer(x) + learned
        return answer


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 16)
        self.head = nn.Linear(16, 64, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.embed(ids))
        return logits


class First(nn.Module):
    """What an RNN or attention answers, without its state."""

    def __init__(self, inner: nn.Module, copies: int = 1) -> None:
        super().__init__()
        self.inner, self.copies = inner, copies

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.inner(*[x] * self.copies)[0]
        return answer


def pruned() -> nn.Module:
    linear = nn.Linear(16, 16)
    prune.random_unstructured(linear, "weight", 0.5)  # type: ignore[no-untyped-call]
    return linear


def shared_layer() -> nn.Module:
    layer = nn.Linear(16, 16)
    return nn.Sequential(layer, nn.ReLU(), layer)


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))


def _loaded(state: dict[str, torch.Tensor]) -> nn.Module:
    model = plain()
    model.load_state_dict(state)
    return model


def channels_last() -> nn.Module:
    convolution: nn.Module = nn.Conv2d(16, 8, 1).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return nn.Sequential(nn.Unflatten(1, (16, 1, 1)), convolution)


X = torch.linspace(-1, 1, 48).view(3, 16)
MODULES: dict[str, tuple[Callable[[], Any], torch.Tensor]] = {
    "plain": (plain, X),
    "tied-head": (Tied, IDS),
    "layer-twice": (shared_layer, X),
    "batch-norm": (lambda: nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)), X),
    "channels-last": (channels_last, X),
    "lstm": (lambda: First(nn.LSTM(16, 8, 2)), X),
    "attention": (lambda: First(nn.MultiheadAttention(16, 2), 3), X),
    "transformer": (lambda: nn.TransformerEncoderLayer(16, 2, 32), X),
    "weight-norm": (lambda: parametrizations.weight_norm(nn.Linear(16, 16)), X),
    "weight-norm-old": (lambda: weight_norm(nn.Linear(16, 16)), X),
    "spectral-norm": (lambda: parametrizations.spectral_norm(nn.Linear(16, 16)), X),
    "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(16, 16)), X),
    "pruned": (pruned, X),
    "lora": (lambda: nn.Sequential(Lora(nn.Linear(16, 16)), nn.ReLU()), X),
    "int8-buffers": (lambda: Scaled(torch.int8), X),
    "int8-parameter": (lambda: Scaled(torch.int8, True), X),
    "fp8-buffers": (lambda: Scaled(torch.float8_e4m3fn), X),
    "fp8-parameter": (lambda: Scaled(torch.float8_e5m2, True), X),
    "int4-packed": (Packed, X),
    "compiled": (lambda: torch.compile(nn.Sequential(nn.Linear(16, 16)), backend="eager"), X),
    "data-parallel": (lambda: nn.DataParallel(nn.Linear(16, 16)), X),
    "averaged": (lambda: torch.optim.swa_utils.AveragedModel(nn.Linear(16, 16)), X),
    "copied": (lambda: copy.deepcopy(nn.Linear(16, 16)), X),
}
CONSUMERS: dict[str, Callable[[nn.Module], Callable[[torch.Tensor], torch.Tensor]]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "compile": lambda model: torch.compile(model, backend="eager"),
    "trace": lambda model: torch.jit.trace(model, X),  # type: ignore[no-untyped-call]
    "fx": lambda model: torch.fx.symbolic_trace(model),
    "export": lambda model: torch.export.export(model, (X,)).module(),
    "functional": lambda model: (
        lambda x: torch.func.functional_call(model, dict(model.state_dict()), (x,))
    ),
    "load_state_dict": lambda model: _loaded(model.state_dict()),
    "save_file": lambda model: _loaded(
        safetensors.torch.load(safetensors.torch.save(model.state_dict()))
    ),
    "lora": lambda model: Lora(model).zeroed(),
}
HALVES = {f"{kind}-bf16": kind for kind in ("Llama", "Mixtral", "T5", "ViT")}
NAMES = (*FAMILIES, *HALVES, *MODULES)


# ---- making and calling ------------------------------------------------------------------------


def make(name: str, seed: int) -> nn.Module:
    """The model of a name, ready to be called. Each seed gives all of its floats other values."""
    torch.manual_seed(seed)
    if name in MODULES:
        model: nn.Module = MODULES[name][0]()
    else:
        half = name in HALVES
        model = family(HALVES.get(name, name), torch.bfloat16 if half else torch.float32)
    with torch.no_grad():
        for tensor in model.parameters():  # norms and biases too
            if tensor.dtype in (torch.float32, torch.bfloat16):
                tensor.add_(torch.randn_like(tensor) / 50)
    # torch's matmul may round otherwise where a weight requires a gradient
    return model.eval().requires_grad_(False)


def answer(name: str, model: Callable[..., Any]) -> list[str]:
    """A digest of each tensor that the model answers."""
    with torch.no_grad():
        if name in MODULES:
            given = model(MODULES[name][1])
        else:
            inputs = FAMILIES[HALVES.get(name, name)][3]
            kind = torch.bfloat16 if name in HALVES else torch.float32
            fitting = {k: t.to(kind) if t.is_floating_point() else t for k, t in inputs.items()}
            given = model(**fitting, return_dict=True)
    return [_digest(tensor) for tensor in _tensors(given)]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)


def _digest(tensor: torch.Tensor) -> str:
    dense = tensor.contiguous()
    content = dense.view(-1).view(torch.uint8).numpy().tobytes()
    return f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha256(content).hexdigest()}"
