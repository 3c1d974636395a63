"""The options of the KV connector, and the configurations with which it does not start."""

from __future__ import annotations

import types
from typing import Any

import pytest

import gpuwm
from gpuwm.vllm.kv import refusals, settings

BLOCK = 1 << 20


def transfer(role: str = "kv_both", **options: Any) -> Any:
    return types.SimpleNamespace(
        kv_connector_extra_config=options,
        is_kv_producer=role in ("kv_producer", "kv_both"),
        is_kv_consumer=role in ("kv_consumer", "kv_both"),
    )


@pytest.mark.parametrize(
    ("role", "puts", "gets"),
    [("kv_producer", True, False), ("kv_consumer", False, True), ("kv_both", True, True)],
)
def test_the_role_says_what_an_engine_does(role: str, puts: bool, gets: bool) -> None:
    found = settings.parse(transfer(role))
    assert (found.puts, found.gets) == (puts, gets)


@pytest.mark.parametrize(
    ("options", "blocks"), [({"gib": 8}, 8192), ({"gib": 0.5}, 512), ({"blocks": 3}, 3)]
)
def test_the_size_of_a_region(options: dict[str, Any], blocks: int) -> None:
    assert settings.parse(transfer(**options)).blocks_of(BLOCK) == blocks


def test_each_rank_has_a_region() -> None:
    assert settings.parse(transfer(region="a")).region_of(3) == "a-r3"
    assert settings.parse(transfer()).region_of(0) == "kv-r0"


def test_a_number_names_a_gpu() -> None:
    assert settings.parse(transfer(device=1)).device == "cuda:1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regoin": "kv"}, 'did you mean "region"'),
        ({"region": ""}, "\"region\" in kv_connector_extra_config is ''"),
        ({"region": "x" * 101}, "at most 100 bytes"),
        ({"gib": 0}, '"gib" in kv_connector_extra_config is 0'),
        ({"gib": "8"}, "GiB, more than 0"),
        ({"gib": True}, "GiB, more than 0"),
        ({"blocks": 0}, "1 or more"),
        ({"blocks": 1, "gib": 1}, 'left out beside "gib"'),
        ({"device": -1}, "UUID of a GPU"),
        ({"lora": "path"}, '"name", or absent'),
        ({"identity": ""}, "a text"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(gpuwm.Invalid, match=message):
        settings.parse(transfer(**options))


@pytest.mark.parametrize(
    ("options", "message"), [({}, '"gib" .* is missing'), ({"gib": 0.0001}, "1,048,576 bytes")]
)
def test_a_new_region_needs_a_size(options: dict[str, Any], message: str) -> None:
    with pytest.raises(gpuwm.Invalid, match=message):
        settings.parse(transfer(**options)).blocks_of(BLOCK)


class FullAttentionSpec:
    non_causal = False


class SlidingWindowSpec:
    pass


class MambaSpec:
    pass


def uniform(*inner: Any) -> Any:
    return types.SimpleNamespace(kv_cache_specs=dict(enumerate(inner)))


def check(groups: Any = None, speculation: str | None = None, **changes: Any) -> None:
    values: dict[str, Any] = {"nnodes": 1, "calculate_kv_scales": False, "is_diffusion": False}
    values |= {"decode_context_parallel_size": 1, "prefill_context_parallel_size": 1}
    values |= {"enable_prefix_caching": True, "multimodal_config": None}
    values |= changes
    everything = types.SimpleNamespace(**values)
    speculative = None if speculation is None else types.SimpleNamespace(method=speculation)
    config = types.SimpleNamespace(
        parallel_config=everything,
        cache_config=everything,
        model_config=everything,
        speculative_config=speculative,
    )
    made = [types.SimpleNamespace(kv_cache_spec=each) for each in groups or [FullAttentionSpec()]]
    refusals.check(config, types.SimpleNamespace(kv_cache_groups=made))


def test_what_it_starts_with() -> None:
    check()
    check(speculation="ngram")
    check([uniform(FullAttentionSpec(), FullAttentionSpec())])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nnodes": 2}, "--nnodes 2"),
        ({"decode_context_parallel_size": 2}, "--decode-context-parallel-size 2"),
        ({"prefill_context_parallel_size": 4}, "--prefill-context-parallel-size 4"),
        ({"calculate_kv_scales": True}, "--calculate-kv-scales"),
        ({"is_diffusion": True}, "diffusion"),
        ({"speculation": "eagle3"}, 'speculation by "eagle3"'),
        ({"groups": [FullAttentionSpec(), MambaSpec()]}, "2 groups"),
        ({"groups": [SlidingWindowSpec()]}, "SlidingWindowSpec"),
        ({"groups": [uniform(FullAttentionSpec(), MambaSpec())]}, "MambaSpec"),
    ],
)
def test_what_it_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(gpuwm.Unsupported, match=message):
        check(**changes)


@pytest.mark.parametrize(("gib", "caches"), [(0, True), (4, False)])
def test_pictures_that_have_names_of_their_content(gib: int, caches: bool) -> None:
    pictures = types.SimpleNamespace(mm_processor_cache_gb=gib)
    check(multimodal_config=pictures, enable_prefix_caching=caches)


def test_pictures_that_vllm_numbers_are_refused() -> None:
    """The first picture of each engine has the same name then."""
    pictures = types.SimpleNamespace(mm_processor_cache_gb=0)
    with pytest.raises(gpuwm.Unsupported, match="--mm-processor-cache-gb 0"):
        check(multimodal_config=pictures, enable_prefix_caching=False)


def test_attention_that_looks_ahead_is_refused() -> None:
    spec = FullAttentionSpec()
    spec.non_causal = True
    with pytest.raises(gpuwm.Unsupported, match="not causal"):
        check([spec])
