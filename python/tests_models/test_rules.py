"""The rules that make a model small, and that find its inputs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests_models import checking, mending, outputs, shrink, trial_models

FEWER = shrink.FIRST
FILLED = dataclasses.replace(FEWER, filled=True)


class Config:
    """As transformers' configurations: fields, and others inside."""

    model_type = "trial"

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)

    def to_dict(self) -> dict[str, Any]:
        return vars(self)


@dataclasses.dataclass(frozen=True)
class Stage:
    """As timm's configurations of blocks."""

    d: int
    c: int


def test_the_rule_with_nothing_set_is_tried_first() -> None:
    assert shrink.RULES[0] == FEWER
    assert len(set(shrink.RULES)) == len(shrink.RULES)


def test_sections_of_a_rotary_embedding_add_up_to_half_a_head() -> None:
    config = Config(
        hidden_size=512,
        num_attention_heads=16,
        rope_parameters={"mrope_section": [8, 12, 12], "partial_rotary_factor": 0.5},
    )
    sections = shrink.shrunk(config, FEWER).rope_parameters["mrope_section"]
    assert sum(sections) == 32 * 0.5 / 2
    assert len(sections) == 3


def test_what_a_configuration_leaves_open_is_set_by_the_rule_for_it() -> None:
    config = Config(
        hidden_size=256,
        num_attention_heads=32,
        num_hidden_layers=12,
        head_dim=None,
        mlp_layer_types=None,
        inner=Config(hidden_size=64, num_attention_heads=16, vocab_size=None),
    )
    assert shrink.shrunk(config, FEWER).head_dim is None
    small = shrink.shrunk(config, FILLED)
    assert small.head_dim == 8
    assert small.mlp_layer_types == ["dense", "sparse"]
    assert small.inner.vocab_size == shrink.TOP_VOCABULARY


def test_a_list_of_the_kinds_of_layers_is_as_long_as_there_are_layers() -> None:
    small = shrink.smaller({"num_layers": 6, "attention_layers": ["global", "local"] * 3}, FEWER)
    assert small == {"num_layers": 2, "attention_layers": ["global", "local"]}
    sparse = {"num_hidden_layers": 12, "moe_layers": list(range(12))}
    assert shrink.smaller(sparse, FEWER) == {"num_hidden_layers": 2, "moe_layers": [0, 1]}
    stages = {"num_layers": 2, "depths": [4, 8]}
    assert shrink.smaller(stages, FEWER) == {"num_layers": 2, "depths": [2, 2]}


@pytest.mark.parametrize("name", ["patch_embeds_hidden_size", "hidden_size_per_layer_input"])
def test_a_hidden_size_is_a_width_whatever_it_is_of(name: str) -> None:
    assert shrink.smaller({name: 256, "patch_size": 16}, FEWER) == {name: 16, "patch_size": 16}


def test_stages_and_dictionaries_become_small_in_depth() -> None:
    given = {"blocks": (Stage(d=9, c=256), Stage(d=1, c=512)), "stem": {"num_blocks": (4, 4)}}
    assert shrink.smaller(given, FEWER) == {
        "blocks": (Stage(d=2, c=16), Stage(d=1, c=32)),
        "stem": {"num_blocks": (2, 2)},
    }


def test_layers_are_made_narrow_where_no_argument_does_it() -> None:
    from tests_models import timm_models

    with timm_models._narrow_layers(8):
        image, groups = nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3, groups=64)
        norm, last = nn.BatchNorm2d(64), nn.Linear(in_features=64, out_features=10)
        by_groups = nn.GroupNorm(32, 64)
    assert (by_groups.num_groups, by_groups.num_channels) == (4, 8)
    assert (image.in_channels, image.out_channels) == (3, 8)
    assert (groups.in_channels, groups.groups) == (8, 8)
    assert norm.num_features == 8
    assert (last.in_features, last.out_features) == (8, 10)
    assert nn.Linear(64, 64).in_features == 64


def test_layers_that_a_class_is_given_are_as_narrow_as_its_arguments() -> None:
    from tests_models import timm_models

    rule = dataclasses.replace(FEWER, divide=16)
    model: Any = timm_models.NarrowWithin("vit_base_mci_224", rule).make()
    given = model.patch_embed.backbone
    widths = {each.out_channels for each in given.modules() if isinstance(each, nn.Conv2d)}
    assert model.embed_dim == max(widths) == 768 / 16
    assert nn.Linear(64, 64).in_features == 64


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224"])
def test_no_rule_of_a_model_comes_twice(name: str) -> None:
    from tests_models import timm_models

    rules = [each.rule for each in timm_models.recipes(name)]
    assert len(set(rules)) == len(rules)


def test_arguments_that_a_rule_leaves_as_they_are_stay_defaults() -> None:
    """A size of images that a class has by default is not that of every model of the class."""
    from tests_models import timm_models

    assert "img_size" not in timm_models.smaller_arguments("hiera_base_abswin_256", FEWER)


def test_words_name_no_folder_of_a_machine() -> None:
    error = ImportError("no natten (/home/me/lib/python3.11/site-packages/natten/__init__.py)")
    assert checking._words(error) == "ImportError: no natten (natten/__init__.py)"


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(7, 3), (1, 4, 5)),
        (nn.LayerNorm(7), (1, 4, 5)),
        (nn.Conv2d(7, 3, 1), (1, 5, 4, 4)),
    ],
)
def test_torch_says_which_width_a_module_takes(module: nn.Module, shape: tuple[int, ...]) -> None:
    inputs: dict[str, Any] = {"words": torch.zeros(2, 5, dtype=torch.long), "x": torch.zeros(shape)}
    with pytest.raises(RuntimeError) as told:
        module(inputs["x"])
    mended = mending.mended(inputs, told.value)
    assert mended is not None
    assert mended["words"] is inputs["words"]
    module(mended["x"])


def test_an_error_without_a_width_mends_nothing() -> None:
    assert mending.mended({"x": torch.zeros(2, 2)}, ValueError("not like this")) is None


def test_one_element_is_compared_whatever_its_stride() -> None:
    one = torch.zeros(1, 1).expand(1, 1).as_strided((1, 1), (0, 0))
    assert outputs.same_bits(one, torch.zeros(1, 1))
    assert not outputs.same_bits(one, torch.ones(1, 1))


@pytest.mark.parametrize(
    ("known", "rules"),
    [
        ({}, ["first", "second"]),
        ({"rule": "third", "ran": ["model"]}, ["third", "first", "second"]),
        ({"rule": "third", "ran": []}, ["third"]),  # as little runs as the last time
        ({"rule": "gone", "ran": ["model"]}, ["first", "second"]),
    ],
)
def test_the_rule_that_made_a_model_the_last_time_is_tried_first(
    known: dict[str, Any], rules: list[str]
) -> None:
    made: list[str] = []

    @dataclasses.dataclass(frozen=True)
    class Noted(trial_models.Trial):
        def make(self) -> nn.Module:
            made.append(self.rule)
            return super().make()

    def recipes(_name: str) -> Iterator[trial_models.Trial]:
        for name, rule in (("Unrun", "first"), ("Whole", "second"), ("Unrun", "third")):
            yield Noted(name, rule)

    library = dataclasses.replace(trial_models.LIBRARY, recipes=recipes)
    checking._made(library, "a name", known)
    assert list(dict.fromkeys(made)) == rules


def test_a_base_of_models_stands_for_one_of_them() -> None:
    import transformers

    from tests_models import diffusers_models

    assert diffusers_models._whole(transformers.PreTrainedModel) is transformers.BertModel
    family = transformers.Gemma2PreTrainedModel
    assert diffusers_models._whole(family) is transformers.Gemma2Model
    for kind in (nn.Linear, transformers.T5EncoderModel):
        assert diffusers_models._whole(kind) is kind


def test_arguments_without_a_value_get_one_by_what_they_count() -> None:
    import diffusers

    from tests_models import diffusers_models

    class Model(diffusers.ModelMixin):  # type: ignore[misc]
        def __init__(
            self, text_dim: int, low: float, depth: int | None = None, **_: Any
        ) -> None: ...

    given = diffusers_models._given(Model, FEWER)
    assert given == {"text_dim": 32, "low": 2, "depth": None}
    assert diffusers_models._given(Model, FILLED) == given | {"depth": 2}


@pytest.mark.parametrize(("inside", "tops"), [(True, {"unet", "vae"}), (False, {""})])
def test_a_pipeline_has_run_if_each_of_its_models_has(inside: bool, tops: set[str]) -> None:
    pipeline = nn.ModuleDict({"unet": nn.Sequential(nn.Linear(2, 2)), "vae": nn.Linear(2, 2)})

    def parts(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        return itertools.islice(model.named_modules(), int(inside), None)

    library = dataclasses.replace(trial_models.LIBRARY, parts=parts)
    assert checking._tops(library, pipeline) == tops
