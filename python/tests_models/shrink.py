"""Configurations of transformers made small by rule: what a field's name says decides.

A rule divides all widths by one number, in the configuration and in those that it holds, so that
whatever fitted together fits still: heads and their dimensions, towers and their projections.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterator
from typing import Any, TypeGuard

# The parts of a name that say what a number counts. The first that matches decides.
KINDS = (
    ("id", re.compile(r"(_id|_ids|_index|_token_indices|token)$|^(unk|mask|pad|bos|eos)_index$")),
    ("vocabulary", re.compile(r"vocab|^num_embeddings$|_vocabulary")),
    ("positions", re.compile(r"max_.*position|^n_positions$|^n_ctx$|model_max_length|max_seq_len")),
    # Of one head, and parts of it: those of rotary embeddings add up to half of it.
    (
        "head",
        re.compile(r"head_dim$|_section$|axes_dim|^(d_kv|kv_channels|rotary_dim)$|query_pre_attn"),
    ),
    ("heads", re.compile(r"heads(_per_(stage|layer))?$|^n_head$")),
    ("image", re.compile(r"(image|img|train|sample)_size$|feat(ure)?_sizes$|_image_sizes?$")),
    ("frames", re.compile(r"^num_frames$|^frames_per_clip$")),
    (
        "routing",
        re.compile(r"experts?_per_tok|^(moe_)?top_?k|moe_k$|topk_group|n_group$|expert_group$"),
    ),
    ("experts", re.compile(r"(num|n)_.*experts$|moe_num_experts$|num_experts$")),
    ("norm", re.compile(r"norm_num_groups$|resnet_groups$")),
    ("groups", re.compile(r"groups?$")),
    ("width", re.compile(r"hidden_size")),  # of patches, and of what each layer gets, too
    ("kept", re.compile(r"kernel|patch|stride|window|padding|ratio|num_mel|chunk|_bins$")),
    (
        "layers",
        re.compile(
            r"(num|n)_.*layers?$|^layers_per_block$|(^|_)layers$|^depths?$|^num_blocks(_list)?$"
            r"|^n_layer$|^d$|_repeats$|^block_config$|^k_sec$"
        ),
    ),
    (
        "width",
        re.compile(
            r"dim(s|ension)?$|dim_per_|size(s)?$|width|channels?(_list)?$|rank|_model$|inner|n_embd"
            r"|filters$|^d_|_d_|units$|features$|channel_size$|kv_channels"
            r"|^hidden$|dims$|_chs$|^widths?$|^c$|^w0$|growth_rates?$|^k_r$|^inc_sec$"
        ),
    ),
)
TOP_VOCABULARY = 1024
TOP_POSITIONS = 4096
TOP_LAYERS = 2
MOST_STAGES = 8  # most models have four
TOP_EXPERTS = 8
TOP_ROUTING = 2  # experts of a token, groups of experts
TOP_IMAGE = 256
TOP_FRAMES = 8  # of a video
TOP_GROUPS = 32  # more of them are as many as there are channels
LENGTH = 8  # of a series
ROPE_THETA = 10000.0  # the base of most rotary embeddings


@dataclasses.dataclass(frozen=True)
class Rule:
    """divide: widths by, to no less than `least`. heads: there are fewer heads, of the width that
    they had; else each is narrower. layers, vocabulary, images: whether these are capped too.
    filled: what a configuration leaves open is set."""

    divide: int
    least: int
    heads: bool
    layers: bool
    vocabulary: bool
    images: bool
    filled: bool

    def __str__(self) -> str:
        names = ("heads", "layers", "vocabulary", "images")
        fewer = [name for name in names if getattr(self, name)]
        text = f"widths/{self.divide} to {self.least}" + "".join(
            f", fewer {name}" for name in fewer
        )
        return text + ", None set" * self.filled


# What a rule departs from, at most, to make a model that runs: the nearest are tried first.
FIRST = Rule(16, 4, heads=True, layers=True, vocabulary=True, images=True, filled=False)
DIVISORS = (16, 8, 32, 4, 64, 2, 1)


def _departures(rule: Rule) -> int:
    """How far the rule is from the first one."""
    flags = ("least", "heads", "layers", "vocabulary", "images", "filled")
    others = [flag for flag in flags if getattr(rule, flag) != getattr(FIRST, flag)]
    return len(others) + (DIVISORS.index(rule.divide) + 1) // 2


RULES = sorted(
    (
        Rule(divide, least, heads, layers, vocabulary, images, filled)
        for vocabulary in (True, False)
        for layers in (True, False)
        for divide in DIVISORS
        for least in (4, 32)  # there are norms with 32 groups of channels
        for heads in (True, False)
        for images in (True, False)
        for filled in (False, True)
    ),
    key=_departures,
)


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS if pattern.search(name)), "kept")


def shrunk(config: Any, rule: Rule) -> Any:
    """A copy of the configuration."""
    made = copy.deepcopy(config)
    _shrink(made, rule)
    return made


def smaller(given: dict[Any, Any], rule: Rule) -> dict[Any, Any]:
    """The arguments of a constructor, by their names."""
    layers = _layers(given, rule)
    return {name: _smaller(str(name), value, rule, layers) for name, value in given.items()}


def configs(config: Any) -> Iterator[Any]:
    """The configuration, and those that it holds."""
    yield config
    for value in vars(config).values():
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            yield from configs(value)


def _shrink(config: Any, rule: Rule) -> None:
    layers = _layers(vars(config), rule)
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            _shrink(value, rule)
        else:
            config.__dict__[name] = _smaller(name, value, rule, layers)
    if rule.filled:
        _fill(vars(config))
    _fit_sections(vars(config))
    for name in ("backbone", "architecture"):
        if isinstance(getattr(config, name, None), str):
            _shrink_timm(vars(config), name, rule)


def _layers(fields: dict[str, Any], rule: Rule) -> dict[int, int]:
    """How many layers there are instead of how many. A number of stages stays."""
    counts = [
        value for name, value in fields.items() if rule.layers and kind_of(str(name)) == "layers"
    ]
    lists = [each for each in counts if isinstance(each, (list, tuple))]
    stages = {len(each) for each in lists if _is_of_stages(each)}
    return {
        each: _capped(each, TOP_LAYERS)
        for each in counts
        if _is_number(each) and each not in stages
    }


def _fill(fields: dict[str, Any]) -> None:
    """Sets what has no value by what has one, and what models read in configurations without it."""
    values: dict[str, Any] = {"dropout_rate": 0.0, "rope_theta": ROPE_THETA}
    values.update((name, {}) for name, each in fields.items() if name.endswith("_map") and not each)
    if "backbone" in fields and fields.get("backbone_config") is None:
        values["backbone"] = "test_resnet"  # of timm
    heads, width = fields.get("num_attention_heads"), fields.get("hidden_size")
    if _is_number(heads) and _is_number(width):
        values |= {
            "head_dim": width // heads,
            "num_key_value_heads": heads,
            "vocab_size": TOP_VOCABULARY,
            "intermediate_size": width,
            "moe_intermediate_size": width,
        }
    layers = fields.get("num_hidden_layers")
    if _is_number(layers):
        values["layer_types"] = ["full_attention"] * layers
        values["mlp_layer_types"] = ["dense", *["sparse"] * (layers - 1)]
    for name, value in values.items():
        if fields.get(name) is None:
            fields[name] = value
    parameters = fields.get("rope_parameters")
    if isinstance(parameters, dict):  # some models have them for each kind of layer
        for kind in fields.get("layer_types") or []:
            parameters.setdefault(kind, {"rope_type": "default", "rope_theta": ROPE_THETA})


def _fit_sections(fields: dict[str, Any]) -> None:
    """The sections of a rotary embedding add up to half of what a head rotates."""
    heads, width = fields.get("num_attention_heads"), fields.get("hidden_size")
    parameters = fields.get("rope_parameters")
    if not _is_number(heads) or not _is_number(width) or not isinstance(parameters, dict):
        return
    of_head = fields.get("head_dim") or width // heads
    half = int(of_head * parameters.get("partial_rotary_factor", 1.0)) // 2
    for name, sections in parameters.items():
        if name.endswith("_section") and sections and sum(sections) != half >= len(sections):
            even = [max(1, each * half // sum(sections)) for each in sections]
            even[0] += half - sum(even)
            parameters[name] = even


def _shrink_timm(fields: dict[str, Any], field: str, rule: Rule) -> None:
    """timm has a small model for tests in many of its files; others get smaller arguments."""
    import timm

    name = fields[field]
    if not timm.is_model(name):
        return
    file = timm.models.model_entrypoint(name).__module__.rpartition(".")[2]
    small = next(iter(timm.list_models("test_*", module=file)), None)
    if small:
        fields[field] = small
    elif "model_args" in fields:
        from . import timm_models

        arguments = timm_models.smaller_arguments(name, rule)
        arguments.pop("num_classes", None)  # the configuration has it in a field of its own
        fields["model_args"] = {**(fields["model_args"] or {}), **arguments}


def _smaller(name: str, value: Any, rule: Rule, layers: dict[int, int]) -> Any:
    if value is None:
        return _filled(name, rule)
    if isinstance(value, dict):
        layers = {**layers, **_layers(value, rule)}
        return {key: _smaller(str(key), each, rule, layers) for key, each in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **smaller(vars(value), rule))
    if isinstance(value, (list, tuple)):
        return _fewer(name, value, rule, layers)
    if not _is_number(value):
        return value
    return _number(name, value, rule, layers)


def _filled(name: str, rule: Rule) -> int | None:
    """For a field that has no value. Models of time series want to be told their lengths."""
    if name in ("prediction_length", "context_length"):
        return LENGTH
    tops = {"experts": TOP_EXPERTS, "routing": TOP_ROUTING}
    return tops.get(kind_of(name)) if rule.filled else None


def _fewer(name: str, value: Any, rule: Rule, layers: dict[int, int]) -> Any:
    """A list with an entry for each layer gets as many as there are layers now, and one of indices
    of layers only those that there are. The layers of stages become fewer, and not the stages."""
    if rule.layers and kind_of(name) == "layers" and _is_of_stages(value):
        return type(value)(_capped(each, TOP_LAYERS) for each in value)
    if len(value) in layers and len(value) > TOP_LAYERS:
        value = _spread(value, layers[len(value)])
    elif layers and re.search(r"ind(ex|ic)|layers$|blocks$|_ids$", name):
        if all(map(_is_number, value)):
            there = [each for each in value if each < TOP_LAYERS]
            return type(value)(there or ([TOP_LAYERS - 1] if value else []))
    elif rule.layers and len(value) > TOP_LAYERS and all(map(_is_block, value)):
        value = value[:TOP_LAYERS]
    return type(value)(_smaller(name, each, rule, layers) for each in value)


def _spread(values: Any, count: int) -> Any:
    """The first entries, with one of each kind if kinds differ."""
    if all(isinstance(each, str) for each in values):
        kinds = list(dict.fromkeys(values))[:count]
        return type(values)(kinds + list(values)[: count - len(kinds)])
    return values[:count]


def _number(name: str, value: int, rule: Rule, layers: dict[int, int]) -> int:
    kind = kind_of(name)
    if kind == "id" and rule.vocabulary:
        return value if value < TOP_VOCABULARY else TOP_VOCABULARY - 1 - value % 64
    if kind == "vocabulary" and rule.vocabulary:
        return _capped(value, TOP_VOCABULARY)
    if kind == "positions":
        return _capped(value, TOP_POSITIONS)
    if kind == "image" and rule.images:
        return _halved(value, TOP_IMAGE)
    if kind == "frames" and rule.images:
        return _capped(value, TOP_FRAMES)
    if kind == "routing":
        return _capped(value, TOP_ROUTING)
    if kind == "experts":
        return _capped(value, TOP_EXPERTS)
    if kind == "layers":
        return layers.get(value, value)
    if kind == "heads" and rule.heads:
        return max(1, value // rule.divide)
    if kind == "head" and not rule.heads and value % rule.divide == 0:
        return value // rule.divide
    if kind == "norm" and rule.least < value:
        return rule.least
    if kind == "groups" and value <= TOP_GROUPS:
        return value
    if kind in ("width", "groups") and value % rule.divide == 0:
        return max(value // rule.divide, min(rule.least, value))
    return value


def _halved(value: int, top: int) -> int:
    while value > top and value % 2 == 0:
        value //= 2
    return value


def _capped(value: int, top: int) -> int:
    return min(value, top)


def _is_of_stages(value: Any) -> bool:
    """A number of layers for each stage. A longer list names the kinds of layers, or which."""
    return len(value) <= MOST_STAGES and all(map(_is_number, value))


def _is_block(value: Any) -> bool:
    """The arguments of one block of those that timm decodes from a text."""
    return isinstance(value, dict) and "block_type" in value


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
