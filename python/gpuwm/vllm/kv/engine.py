"""What the connector reads from vLLM's configuration and objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ... import errors
from ..._mapping import Mapping as Attached
from ...engines import texts
from ...image import record
from .. import differences, keys, model_loader
from . import chain

_BLOCKS = 1237  # a number of blocks that is no other dimension of a KV cache


def block_size(kv_cache_config: Any) -> int:
    """Tokens of a block."""
    return int(kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size)


def rank_index(vllm_config: Any) -> int:
    """This worker's position among the ranks that compute one model."""
    at = keys.ranks(vllm_config)
    return at.pp * int(vllm_config.parallel_config.tensor_parallel_size) + at.tp


def fields(vllm_config: Any, tokens: int, layers: Iterable[str]) -> dict[str, str]:
    """What a rank's KV depends on besides its weights, the request, and where bytes lie in a block.
    tokens: of a block. layers: with a KV cache.

    Call it in the worker when the model is there.
    """
    config, cache = vllm_config.model_config, vllm_config.cache_config
    known = vllm_config.compilation_config.static_forward_context
    loaded = _loaded(vllm_config, layers)
    # Building a model writes into vLLM's configuration. gpuwm's loader has read it before.
    layout = keys.layout(vllm_config, config) if loaded is None else loaded.engine.layout
    backends = {
        known[name].get_attn_backend().get_name()
        for name in layers
        if hasattr(known.get(name), "get_attn_backend")
    }
    return {
        **layout,
        "kv.tokens": str(tokens),
        "kv.dtype": f"{cache.cache_dtype} of {config.dtype}",
        "kv.backends": ", ".join(sorted(backends)),
        "kv.media": media(config),
    }


def media(model_config: Any) -> str:
    """How the engine prepares pictures and other media. vLLM's digest of a picture covers what the
    request asks of the processor, and not --mm-processor-kwargs."""
    multimodal = getattr(model_config, "multimodal_config", None)
    return texts.canonical(getattr(multimodal, "mm_processor_kwargs", None) or {})


def _loaded(vllm_config: Any, layers: Iterable[str]) -> model_loader.Loaded | None:
    """What the model was loaded from that has these layers. None: it is not in gpuwm's memory."""
    known = vllm_config.compilation_config.static_forward_context
    return model_loader.holding(known.get(next(iter(layers))))


def block_dims(vllm_config: Any, caches: Mapping[str, Any]) -> dict[str, int]:
    """In which dimension of each layer's KV cache the blocks are, as its backend says."""
    layers = vllm_config.compilation_config.static_forward_context
    found = {}
    for name in caches:
        layer = layers.get(name)
        if layer is None or not hasattr(layer, "get_attn_backend"):
            continue
        spec = layer.get_kv_cache_spec(vllm_config)
        if spec is None:  # it uses the cache of another layer
            continue
        shape = layer.get_attn_backend().get_kv_cache_shape(
            _BLOCKS, spec.block_size, spec.num_kv_heads, spec.head_size
        )
        found[name] = shape.index(_BLOCKS)
    return found


def recovers(vllm_config: Any) -> bool:
    """Whether vLLM goes on correctly after a load that has failed. vLLM 0.25.1 computes such a
    request again from a wrong place with its second model runner, and counts its tokens wrongly
    with asynchronous scheduling (vllm-project/vllm issue 49250)."""
    if vllm_config.kv_transfer_config.kv_load_failure_policy == "fail":
        return True
    second = bool(getattr(vllm_config, "use_v2_model_runner", False))
    return not second and not vllm_config.scheduler_config.async_scheduling


def is_empty(pool: Any) -> bool:
    """Whether no request and no cached prefix has a block. pool: vLLM's BlockPool. One block is
    never free: the null block."""
    return pool is not None and pool.get_num_free_blocks() == pool.num_gpu_blocks - 1


class WeightsOf:
    """What stands for the weights of this worker's model.

    - layers: with a KV cache. identity: the option.
    - changed: is called when the model has moved to other weights.

    Raises Unsupported if nothing stands for them.
    """

    def __init__(
        self,
        vllm_config: Any,
        layers: Iterable[str],
        identity: str | None,
        changed: Callable[[], None],
    ) -> None:
        self._identity = identity
        self._loaded = _loaded(vllm_config, layers)
        self._values = ""
        if self._loaded is not None:
            self._loaded.moved.append(changed)
            # An engine moves only to versions with the same values.
            self._values = _values(self._loaded.mapping)
        if identity is not None:
            return
        if self._loaded is None:
            raise errors.Unsupported(
                "this engine's weights are not gpuwm's, so nothing says which they are, and KV of "
                "other weights must never match",
                'start it with --load-format gpuwm, or name the weights: "identity"',
            )
        if self._loaded.engine.settings.private:
            raise errors.Unsupported(
                'with "private" the engine may write into some weights, so their version does not '
                "say what KV is computed with",
                'leave it out, or name the weights: "identity"',
            )

    def text(self) -> str:
        """It is equal for equal weights only."""
        name = "" if self._identity is None else f"named {self._identity}"
        if self._loaded is None:
            return name
        return f"{name} values {self._values} tensors {_tensors(self._loaded.mapping)}"


def _tensors(mapping: Attached) -> str:
    """A digest of all tensors of a version. `version.content` would cover who made it, and when: an
    engine on another GPU has a version of its own, made of the same weights."""
    digests = mapping.digests()
    described = (
        (info.name, info.dtype, info.shape, info.strides, digests[info.name])
        for info in mapping.infos()
    )
    return chain.digest(*(repr(each).encode() for each in described)).hex()


def _values(mapping: Attached) -> str:
    """A digest of the plain values that the modules of a version have."""
    values = (
        (node.name, node.said, kind, key, held)
        for node in record.read(mapping).nodes
        for kind, key, held in node.slots
        if key not in differences.WRITTEN_BY_LOADING
    )
    return chain.digest(*(repr(each).encode() for each in values)).hex()
