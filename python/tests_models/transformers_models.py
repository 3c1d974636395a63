"""Every entry of transformers' MODEL_MAPPING, and what its forward pass takes."""

from __future__ import annotations

# isort: off
from . import environment  # noqa: F401  (first: transformers imports torchvision)

# isort: on
import copy
import dataclasses
import inspect
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING, MODEL_MAPPING_NAMES

from . import shrink
from .recipes import Inputs, Library

BATCH = 1
TOKENS = 16
SAMPLES = 8000  # of sound: half a second
FRAMES = (64, 128, 3000)  # of a spectrogram; the last are the 30 s that Whisper's kind insists on
MOST_INPUTS = 16  # combinations of values that are tried with the same names


@dataclasses.dataclass(frozen=True)
class Made:
    """A model class with a configuration."""

    rule: str
    kind: Any
    config: Any

    def make(self) -> nn.Module:
        model: nn.Module = self.kind(self.config_again())
        return model

    def config_again(self) -> Any:
        """A constructor may write into its configuration."""
        return copy.deepcopy(self.config)


def names() -> list[str]:
    return sorted(MODEL_MAPPING_NAMES)


def recipes(name: str) -> Iterator[Made]:
    config = CONFIG_MAPPING[name]()
    kind: Any = MODEL_MAPPING[type(config)]
    kind = kind[0] if isinstance(kind, (list, tuple)) else kind
    config = _of_kind(config, kind)
    seen = []
    for rule in shrink.RULES:
        small = shrink.shrunk(config, rule)
        if small.to_dict() not in seen:  # to this configuration the rule is new
            seen.append(small.to_dict())
            yield Made(str(rule), kind, small)


def _of_kind(config: Any, kind: Any) -> Any:
    """The class may be of a model that the configuration holds with others."""
    wanted = getattr(kind, "config_class", None)
    if not wanted or isinstance(config, wanted):
        return config
    return next((each for each in shrink.configs(config) if isinstance(each, wanted)), config)


def parts(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The model, and the models that it is made of."""
    for path, module in model.named_modules():
        if isinstance(module, PreTrainedModel):
            yield path, module


def inputs(model: nn.Module) -> Iterator[Inputs]:
    """By the names of what `forward` takes: what it needs and the main input first, then with more
    of what it may take."""
    parameters = inspect.signature(model.forward).parameters
    needed = [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    main = getattr(model, "main_input_name", "input_ids")
    mains = main if isinstance(main, (list, tuple)) else [main]
    configs = list(shrink.configs(model.config))
    first = [name for name in (*needed, *mains) if name in parameters]
    more = [name for name in parameters if name in VALUES and name in ALSO]
    for chosen in _choices(list(dict.fromkeys(first)), more, parameters):
        cut = not GRIDS.isdisjoint(chosen)
        values = [list(_values(name, configs, cut)) for name in chosen]
        for combination in itertools.islice(itertools.product(*values), MOST_INPUTS):
            given = dict(zip(chosen, combination, strict=True))
            yield given
            yield from _masked(given, parameters)
            if "use_cache" in parameters:
                yield {**given, "use_cache": False}
    dummies = getattr(model, "dummy_inputs", None)
    if isinstance(dummies, dict):
        yield dummies


def _masked(given: Inputs, parameters: Mapping[str, Any]) -> Iterator[Inputs]:
    """The same with a mask that hides nothing, where the module takes one and reads it."""
    for name in ("input_features", "input_values", "pixel_values"):
        masks = (f"{name}_mask", "pixel_mask" if name == "pixel_values" else "attention_mask")
        mask = next((each for each in masks if each in parameters), None)
        if name in given and mask:
            shape = given[name].shape
            ends = (shape[-2:],) if name == "pixel_values" else ((shape[-1],), (shape[-2],))
            for end in ends:
                yield {**given, mask: torch.ones(shape[0], *end, dtype=torch.long)}


def _choices(
    first: list[str], more: list[str], parameters: Mapping[str, Any]
) -> Iterator[list[str]]:
    yield [*first, *(name for name in more if name not in first)]
    if first:
        yield first
    for name in more:
        if name not in first:
            yield [*first, name]
    grids = [name for name in (*sorted(GRIDS), "pixel_attention_mask") if name in parameters]
    if grids and "pixel_values" in parameters:
        yield list(dict.fromkeys([*first, "pixel_values", *grids]))


def _values(name: str, configs: list[Any], cut: bool) -> Iterator[Any]:
    """cut: images go in as rows of patches, since their places go in besides."""
    make = VALUES.get(name)
    if cut and make is _images:
        yield from _patches(configs)
    if make is None:
        yield from _hidden(configs)
    else:
        yield from make(configs)


def _of(configs: list[Any], *names: str) -> Iterator[Any]:
    """Values of these fields, the outermost configuration's first, each value once."""
    seen = []
    for name in names:
        for config in configs:
            value = getattr(config, name, None)
            if value is not None and value not in seen:
                seen.append(value)
                yield value


def _number(configs: list[Any], otherwise: int, *names: str) -> int:
    return next((v for v in _of(configs, *names) if isinstance(v, int)), otherwise)


def _tokens(configs: list[Any]) -> Iterator[torch.Tensor]:
    """Small numbers, which no configuration has for special tokens of images and sounds."""
    top = min([_number(configs, 64, "vocab_size", "num_embeddings"), 64])
    lowest = min(4, top - 1)
    yield torch.randint(lowest, top, (BATCH, TOKENS))
    for books in _of(configs, "num_codebooks", "n_codebooks", "num_quantizers", "n_codes_total"):
        if isinstance(books, int):
            yield torch.randint(lowest, top, (BATCH, TOKENS, books))
            yield torch.randint(lowest, top, (BATCH, books, TOKENS))
            yield torch.randint(lowest, top, (BATCH, TOKENS, books + 1))  # and one of text


def _sizes(configs: list[Any]) -> Iterator[tuple[int, int]]:
    for size in _of(configs, "image_size", "img_size", "pretrain_image_size", "train_size"):
        if isinstance(size, dict):
            size = list(size.values())
        if isinstance(size, (list, tuple)):
            yield (int(size[0]), int(size[-1]))
        else:
            yield (int(size), int(size))
    yield (224, 224)
    yield (64, 64)


def _channels(configs: list[Any]) -> int:
    return _number(configs, 3, "num_channels", "in_channels", "in_chans", "num_input_channels")


def _images(configs: list[Any]) -> Iterator[torch.Tensor]:
    channels = _channels(configs)
    for height, width in _sizes(configs):
        yield torch.randn(BATCH, channels, height, width)
    for height, width in _sizes(configs):
        frames = _number(configs, 4, "num_frames", "frames_per_clip")
        yield torch.randn(BATCH, frames, channels, height, width)
    yield from _pairs(configs)
    yield from _patches(configs)


def _patches(configs: list[Any]) -> Iterator[torch.Tensor]:
    """Images that a processor has cut into patches: a row for each."""
    channels = _channels(configs)
    for patch in _of(configs, "patch_size"):
        if isinstance(patch, int):
            times = _number(configs, 1, "temporal_patch_size")
            yield torch.randn(64, channels * times * patch * patch)
            yield torch.randn(BATCH, 64, channels * patch * patch)
            yield torch.randn(64, channels, patch, patch)
            yield torch.randn(BATCH, channels, patch, 64 * patch)


def _grid(configs: list[Any]) -> Iterator[torch.Tensor]:
    yield torch.tensor([[1, 8, 8]])
    yield torch.tensor([[8, 8]])


def _merges(_configs: list[Any]) -> Iterator[torch.Tensor]:
    yield torch.tensor([1])
    yield torch.tensor([2])


def _patch_mask(_configs: list[Any]) -> Iterator[torch.Tensor]:
    yield torch.ones(BATCH, 64, dtype=torch.long)


def _sounds(configs: list[Any]) -> Iterator[torch.Tensor]:
    channels = _number(configs, 1, "audio_channels")
    yield torch.randn(BATCH, SAMPLES)
    yield torch.randn(BATCH, channels, SAMPLES)
    yield from _spectra(configs)


def _spectra(configs: list[Any]) -> Iterator[torch.Tensor]:
    names = (
        *("num_mel_bins", "feature_size", "input_feat_size", "n_mels", "input_dim"),
        *("input_feat_per_channel", "feature_projection_input_dim", "num_mel_bins"),
        *("max_source_positions", "input_features_dim", "speech_input_dim"),
    )
    bins = [each for each in _of(configs, *names) if isinstance(each, int)] or [80, 128]
    bins += [each * bins[0] for each in _of(configs, "num_stacked_frames")]
    lengths = ("max_length", "spectrogram_length", "input_tdim", "max_target_positions")
    for frames in (*FRAMES, *_of(configs, *lengths)):
        for each in bins:
            yield torch.randn(BATCH, frames, each)
            yield torch.randn(BATCH, each, frames)
            yield torch.randn(BATCH, 1, frames, each)


def _mel_mask(_configs: list[Any]) -> Iterator[torch.Tensor]:
    for frames in FRAMES:
        yield torch.zeros(BATCH, frames, dtype=torch.bool)


def _positions(_configs: list[Any]) -> Iterator[torch.Tensor]:
    """Of 64 patches in rows of eight."""
    yield torch.stack(torch.meshgrid(torch.arange(8), torch.arange(8), indexing="xy"), -1).view(
        BATCH, 64, 2
    )


def _encoded(configs: list[Any]) -> Iterator[torch.Tensor]:
    for width in _of(configs, "encoder_hidden_size", "hidden_size", "d_model"):
        if isinstance(width, int):
            yield torch.randn(BATCH, TOKENS, width)


def _pairs(configs: list[Any]) -> Iterator[torch.Tensor]:
    """Two images, which a model compares."""
    channels = _channels(configs)
    for height, width in _sizes(configs):
        yield torch.randn(BATCH, 2, channels, height, width)


def _features(configs: list[Any]) -> Iterator[torch.Tensor]:
    """Of regions of an image."""
    yield torch.randn(BATCH, TOKENS, _number(configs, 2048, "visual_feat_dim"))


def _places(configs: list[Any]) -> Iterator[torch.Tensor]:
    yield torch.rand(BATCH, TOKENS, _number(configs, 4, "visual_pos_dim"))


def _boxes(_configs: list[Any]) -> Iterator[torch.Tensor]:
    corners = torch.randint(0, 50, (BATCH, TOKENS, 2))
    yield torch.cat([corners, corners + 10], dim=-1)


def _hidden_or_patches(configs: list[Any]) -> Iterator[torch.Tensor]:
    yield from _hidden(configs)
    yield from _patches(configs)


def _hidden(configs: list[Any]) -> Iterator[torch.Tensor]:
    widths = ("hidden_size", "d_model", "embed_dim", "hidden_dim", "encoder_hidden_size")
    for width in _of(configs, *widths):
        if isinstance(width, int):
            yield torch.randn(BATCH, TOKENS, width)
            yield torch.randn(TOKENS, width)


def _past(configs: list[Any]) -> Iterator[torch.Tensor]:
    length = _number(configs, 64, "context_length", "seq_length", "prediction_length")
    channels = _number(configs, 1, "num_input_channels", "input_size")
    yield torch.randn(BATCH, length, channels)
    yield torch.randn(BATCH, length)
    lags = max(next(_of(configs, "lags_sequence"), [0]))
    yield torch.randn(BATCH, length + lags)


def _past_time(configs: list[Any]) -> Iterator[torch.Tensor]:
    length = _number(configs, 64, "context_length", "seq_length", "prediction_length")
    lags = max(next(_of(configs, "lags_sequence"), [0]))
    yield torch.randn(BATCH, length + lags, _number(configs, 0, "num_time_features"))


def _past_mask(configs: list[Any]) -> Iterator[torch.Tensor]:
    length = _number(configs, 64, "context_length", "seq_length", "prediction_length")
    lags = max(next(_of(configs, "lags_sequence"), [0]))
    yield torch.ones(BATCH, length + lags)


def _past_padding(configs: list[Any]) -> Iterator[torch.Tensor]:
    length = _number(configs, 64, "context_length", "seq_length", "prediction_length")
    yield torch.zeros(BATCH, length, dtype=torch.long)


def _frequency(_configs: list[Any]) -> Iterator[torch.Tensor]:
    yield torch.zeros(BATCH, 1, dtype=torch.long)


VALUES: dict[str, Any] = {
    "input_ids": _tokens,
    "decoder_input_ids": _tokens,
    "text_input_ids": _tokens,
    "question_input_ids": _tokens,
    "pixel_values": _images,
    "visual_pixel_values": _images,
    "pixel_values_videos": _images,
    "hidden_states": _hidden_or_patches,
    "input": _hidden,
    "inputs": _hidden,
    "image_grid_thw": _grid,
    "grid_thw": _grid,
    "spatial_shapes": _grid,
    "target_sizes": _grid,
    "merge_sizes": _merges,
    "pixel_attention_mask": _patch_mask,
    "prompt_pixel_values": _images,
    "prompt_masks": _images,
    "context_hidden_states": _hidden,
    "past_values_padding": _past_padding,
    "freq": _frequency,
    "input_values": _sounds,
    "input_features": _spectra,
    "audio_values": _sounds,
    "bbox": _boxes,
    "past_values": _past,
    "past_time_features": _past_time,
    "past_observed_mask": _past_mask,
    "encoder_hidden_states": _encoded,
    "visual_feats": _features,
    "visual_pos": _places,
    "audio_mel": _spectra,
    "audio_mel_mask": _mel_mask,
    "pixel_position_ids": _positions,
}
# Where the patches are of which an image consists.
GRIDS = frozenset(
    ("grid_thw", "image_grid_thw", "spatial_shapes", "target_sizes", "pixel_position_ids")
)
# What a model may leave out, and computes with if it is given.
ALSO = (
    "decoder_input_ids",
    "bbox",
    "visual_feats",
    "visual_pos",
    "pixel_values",
    "input_values",
    "input_features",
    "input_ids",
    "encoder_hidden_states",
)

LIBRARY = Library(names, recipes, inputs, parts, transformers.__version__)
