"""Every pipeline of diffusers: a pipeline here is the models that its constructor takes."""

from __future__ import annotations

# isort: off
from . import environment  # noqa: F401  (first: transformers imports torchvision)

# isort: on
import dataclasses
import inspect
import itertools
import typing
from collections.abc import Iterator
from typing import Any

import diffusers
import torch
from diffusers import ModelMixin
from torch import nn
from transformers import BertModel, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_MAPPING

from . import shrink, transformers_models
from .recipes import Inputs, Library

BATCH = 1
SIDE = 32  # of an image, or of what stands for it
LEAST_SIDE = 8
COMPRESSED = 8  # pixels of a side become one
FRAMES = 5  # of a video: one, and a multiple of the four that models compress into one
TOKENS = 16
WIDTH, POOLED = 24, 20  # of texts; an error says which of them a module takes in another width
# For arguments without a value, by what they count; and for those that count nothing.
OWN = {"width": 32, "heads": 2, "layers": 2, "vocabulary": 64, "image": SIDE, "norm": 4}
OTHERWISE = 2
MOST_INPUTS = 24


@dataclasses.dataclass(frozen=True)
class Made:
    """Classes of models by the names of a constructor, with what each is made from: the arguments
    of a model of diffusers, the configuration of one of transformers."""

    rule: str
    kinds: dict[str, tuple[Any, Any]]

    def make(self) -> nn.Module:
        return nn.ModuleDict({name: _make(*each) for name, each in self.kinds.items()})


def _make(kind: Any, given: Any) -> nn.Module:
    model: nn.Module
    if issubclass(kind, PreTrainedModel):
        model = transformers_models.Made("", kind, given).make()
    else:
        model = kind(**given)
    return model


def names() -> list[str]:
    """Pipelines are found by their name: to look at each of these classes is to import all of
    diffusers. Modular ones are made of blocks, which their repositories name."""
    listed = itertools.chain.from_iterable(diffusers._import_structure.values())
    return sorted({n for n in listed if n.endswith("Pipeline") and "Modular" not in n})


def recipes(name: str) -> Iterator[Made]:
    kinds = dict(_components(getattr(diffusers, name)))
    if not kinds:
        lacks = getattr(getattr(diffusers, name), "_backends", None)  # of a stand-in for a class
        needs = f", or needs a package: {', '.join(lacks)}" if lacks else ""
        raise TypeError(f"{name} takes no models of torch{needs}")
    seen: list[Any] = []
    for rule in shrink.RULES:
        made = {each: (kind, _given(kind, rule)) for each, kind in kinds.items()}
        text = repr(made)
        if text not in seen:
            seen.append(text)
            yield Made(str(rule), made)


def _components(pipeline: Any) -> Iterator[tuple[str, Any]]:
    """Of several classes that a pipeline takes, the first."""
    hints = typing.get_type_hints(pipeline.__init__)
    for name, hint in hints.items():
        for kind in typing.get_args(hint) or (hint,):
            if isinstance(kind, type) and issubclass(kind, nn.Module):
                yield name, _whole(kind)
                break


def _whole(kind: Any) -> Any:
    """For the base of a family of transformers its model, and for the base of all any one."""
    if not issubclass(kind, PreTrainedModel) or not isinstance(kind, type(PreTrainedModel)):
        return kind
    if kind.config_class is None:
        return BertModel
    return MODEL_MAPPING.get(kind.config_class, kind) if kind.forward is nn.Module.forward else kind


def _given(kind: Any, rule: shrink.Rule) -> Any:
    if issubclass(kind, PreTrainedModel):
        return shrink.shrunk(kind.config_class(), rule)
    if not issubclass(kind, ModelMixin):
        raise TypeError(f"{kind.__name__} has no configuration")
    parameters = inspect.signature(kind.__init__).parameters
    defaults = {n: each.default for n, each in parameters.items() if n != "self"}
    given = {n: value for n, value in defaults.items() if value is not inspect.Parameter.empty}
    own = {n: OWN[k] for n in defaults if (k := shrink.kind_of(n)) in OWN}
    needed = {n: own.get(n, OTHERWISE) for n, each in parameters.items() if _is_needed(n, each)}
    small = shrink.smaller(given, rule)
    if rule.filled:
        small.update((n, own[n]) for n, value in small.items() if value is None and n in own)
    return {**small, **needed}


def _is_needed(name: str, parameter: inspect.Parameter) -> bool:
    is_one = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return is_one and name != "self" and parameter.default is parameter.empty


def parts(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The models of the pipeline, and the models that these are made of."""
    for path, module in model.named_modules():
        if isinstance(module, (ModelMixin, PreTrainedModel)):
            yield path, module


def inputs(model: nn.Module) -> Iterator[Inputs]:
    if isinstance(model, PreTrainedModel):
        yield from transformers_models.inputs(model)
        return
    parameters = inspect.signature(model.forward).parameters
    needed = [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    more = [name for name in parameters if name in VALUES and name not in needed]
    without = [name for name in more if name != "guidance"]
    for chosen in (needed, [*needed, *without], [*needed, *more]):
        values = [list(VALUES.get(name, _texts)(model)) for name in chosen]
        for combination in itertools.islice(itertools.product(*values), MOST_INPUTS):
            yield dict(zip(chosen, combination, strict=True))


def _field(model: Any, *names: str, otherwise: int) -> int:
    values = (getattr(model.config, name, None) for name in names)
    return next((value for value in values if isinstance(value, int)), otherwise)


def _samples(model: nn.Module) -> Iterator[torch.Tensor]:
    """Images, videos, rows of patches, sounds."""
    channels = _field(model, "in_channels", "in_channel", "input_channels", otherwise=3)
    side = min(SIDE, _field(model, "sample_size", otherwise=SIDE))
    if not ROWS.isdisjoint(inspect.signature(model.forward).parameters):
        yield torch.randn(BATCH, TOKENS, channels)
    yield torch.randn(BATCH, channels, side, side)
    yield torch.randn(BATCH, channels, LEAST_SIDE, LEAST_SIDE)
    yield torch.randn(BATCH, channels, FRAMES, side, side)
    yield torch.randn(BATCH, FRAMES, channels, side, side)
    yield torch.randn(BATCH, TOKENS, channels)
    yield torch.randn(BATCH, channels, side * side)


def _controls(model: nn.Module) -> Iterator[torch.Tensor]:
    """Images that say what a sample has to look like, before they are compressed as it is."""
    side = COMPRESSED * min(SIDE, _field(model, "sample_size", otherwise=SIDE))
    yield torch.randn(BATCH, _field(model, "conditioning_channels", otherwise=3), side, side)
    yield from _samples(model)


def _texts(_model: nn.Module) -> Iterator[torch.Tensor]:
    yield torch.randn(BATCH, TOKENS, WIDTH)


def _pooled(_model: nn.Module) -> Iterator[torch.Tensor]:
    yield torch.randn(BATCH, POOLED)


def _times(_model: nn.Module) -> Iterator[torch.Tensor]:
    yield torch.tensor([1])
    yield torch.tensor([0.5])


def _one(_model: nn.Module) -> Iterator[torch.Tensor]:
    yield torch.tensor([1.0])


def _label(_model: nn.Module) -> Iterator[torch.Tensor]:
    yield torch.tensor([1])


def _places(_model: nn.Module) -> Iterator[torch.Tensor]:
    yield torch.zeros(TOKENS, 3)
    yield torch.zeros(BATCH, TOKENS, 3)
    yield torch.zeros(TOKENS, 4)


def _conditions(_model: nn.Module) -> Iterator[dict[str, Any]]:
    yield {"resolution": None, "aspect_ratio": None}
    yield {"resolution": torch.ones(BATCH, 2), "aspect_ratio": torch.ones(BATCH, 1)}


def _shapes(_model: nn.Module) -> Iterator[list[Any]]:
    """Of images whose patches are rows: frames, height, width."""
    yield [[(1, 4, TOKENS // 4)]]


def _lengths(_model: nn.Module) -> Iterator[list[int]]:
    yield [TOKENS]


def _mask(_model: nn.Module) -> Iterator[torch.Tensor]:
    yield torch.ones(BATCH, TOKENS, dtype=torch.bool)


VALUES: dict[str, Any] = {
    "sample": _samples,
    "x": _samples,
    "hidden_states": _samples,
    "controlnet_cond": _controls,
    "control_hidden_states": _samples,
    "encoder_hidden_states": _texts,
    "pooled_projections": _pooled,
    "encoder_attention_mask": _mask,
    "encoder_hidden_states_mask": _mask,
    "timestep": _times,
    "timesteps": _times,
    "added_cond_kwargs": _conditions,
    "img_shapes": _shapes,
    "txt_seq_lens": _lengths,
    "guidance": _one,
    "class_labels": _label,
    "txt_ids": _places,
    "img_ids": _places,
}

# With these, images go in as rows of patches.
ROWS = frozenset(("img_ids", "img_shapes", "image_ids"))

LIBRARY = Library(names, recipes, inputs, parts, diffusers.__version__)
