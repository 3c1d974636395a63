"""The configurations of vLLM with which GpuwmConnector does not start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import errors
from ...engines.refusals import Refused

# Speculation without KV of its own. The KV of a draft at a position depends on the token after it,
# so the tokens of a block do not say all that its KV depends on.
_WITHOUT_DRAFT = ("ngram", "ngram_gpu", "suffix")
# Caches in which each full block has the KV of its tokens until the request ends, and nothing else.
_SPECS = ("FullAttentionSpec", "MLAAttentionSpec")
_WITHOUT_CONNECTOR = "start the engine without --kv-transfer-config"


def check(vllm_config: Any, kv_cache_config: Any) -> None:
    """Raises Unsupported, which names the first option that does not go with the connector."""
    for what, why, remedy in _refused(vllm_config, kv_cache_config):
        raise errors.Unsupported(f"GpuwmConnector refuses {what}: {why}", remedy)


def _refused(vllm_config: Any, kv_cache_config: Any) -> Iterator[Refused]:
    parallel = vllm_config.parallel_config
    if getattr(parallel, "nnodes", 1) > 1:
        yield Refused(
            f"--nnodes {parallel.nnodes}",
            "a region lies on one machine",
            "start the engine on one machine",
        )
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) > 1:
            yield Refused(
                f"--{name.replace('_', '-')} {getattr(parallel, name)}",
                "a block has tokens of one rank only then",
            )
    speculative = vllm_config.speculative_config
    if speculative is not None and speculative.method not in _WITHOUT_DRAFT:
        yield Refused(
            f'speculation by "{speculative.method}"',
            "a draft's KV depends on tokens that its block does not have",
            f"start the engine without it, or with one of {', '.join(_WITHOUT_DRAFT)}",
        )
    if getattr(vllm_config.cache_config, "calculate_kv_scales", False):
        yield Refused(
            "--calculate-kv-scales",
            "the scales, and with them all KV, depend on the first prompt of the engine",
        )
    if getattr(vllm_config.model_config, "is_diffusion", False):
        yield Refused("a diffusion model", "KV of its tokens changes until they are final")
    multimodal = getattr(vllm_config.model_config, "multimodal_config", None)
    if (
        multimodal is not None
        and multimodal.mm_processor_cache_gb == 0
        and not vllm_config.cache_config.enable_prefix_caching
    ):
        yield Refused(
            "--mm-processor-cache-gb 0 with --no-enable-prefix-caching",
            "vLLM then names a picture by a counter of the engine, and not by its content, so two "
            "engines have one name for different pictures",
            "leave one of the two options out",
        )
    yield from _caches(kv_cache_config)


def _caches(kv_cache_config: Any) -> Iterator[Refused]:
    groups = kv_cache_config.kv_cache_groups
    if len(groups) != 1:
        yield Refused(
            f"a model with {len(groups)} groups of KV caches",
            "it has layers of different kinds, whose blocks hold different tokens",
            _WITHOUT_CONNECTOR,
        )
        return
    spec = groups[0].kv_cache_spec
    inner = getattr(spec, "kv_cache_specs", None)
    for each in inner.values() if inner is not None else (spec,):
        kind = type(each).__name__
        if kind not in _SPECS:
            why = "a block does not keep the KV of its tokens until the request ends"
            yield Refused(f"a KV cache of the kind {kind}", why, _WITHOUT_CONNECTOR)
        if getattr(each, "non_causal", False):
            why = "KV of a token depends on tokens after it"
            yield Refused("attention that is not causal", why, _WITHOUT_CONNECTOR)
