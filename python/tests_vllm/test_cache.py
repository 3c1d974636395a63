"""The KV cache of a standby engine: vLLM's own allocation in addresses whose memory comes later."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import gpuwm

from .conftest import NEW

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's imports warn

ONE = NEW  # one allocation has all layers
CPU = torch.device("cpu")
PAGE = 1 << 20
BLOCK = 64 << 20


def config(*sizes: int, packed: bool = False) -> Any:
    """vLLM's KVCacheConfig with a layer for each size. From vLLM 0.29 on all layers lie in one
    allocation, one after the other; `packed` changes nothing then."""
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, KVCacheTensor

    names = [f"layer{n}" for n in range(len(sizes))]
    tensors: list[Any]
    if ONE:
        begins = [sum(sizes[:n]) for n in range(len(sizes))]
        tensors = [
            KVCacheTensor(sum(sizes), [name], size, size, begin)
            for name, size, begin in zip(names, sizes, begins, strict=True)
        ]
    else:
        tensors = [
            KVCacheTensor(size=size, shared_by=[name], block_stride=PAGE if packed else 0)
            for name, size in zip(names, sizes, strict=True)
        ]
    group = KVCacheGroupSpec(names, types.SimpleNamespace(has_layer_views=False))
    return KVCacheConfig(num_blocks=1, kv_cache_tensors=tensors, kv_cache_groups=[group])


def of_runner_1(kv_cache: Any) -> dict[str, torch.Tensor]:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    if ONE:
        return of_both(kv_cache)
    runner = types.SimpleNamespace(
        device=CPU, runner_only_attn_layers=set(), shared_kv_cache_layers={}
    )
    allocate: Any = GPUModelRunner._allocate_kv_cache_tensors
    found: dict[str, torch.Tensor] = allocate(runner, kv_cache)
    return found


def of_runner_2(kv_cache: Any) -> dict[str, torch.Tensor]:
    from vllm.v1.worker.gpu import attn_utils

    if ONE:
        return of_both(kv_cache)
    found: dict[str, torch.Tensor] = attn_utils._allocate_kv_cache(kv_cache, {}, CPU)
    return found


def of_both(kv_cache: Any) -> dict[str, torch.Tensor]:
    """Of both runners since 0.29. Each layer is a view of the whole, as its spec asks for."""
    from vllm.v1.worker.utils import allocate_kv_cache

    found = allocate_kv_cache(kv_cache, CPU, None)
    return {
        tensor.layers[0]: found[tensor.layers[0]][tensor.offset :][: tensor.layer_stride]
        for tensor in kv_cache.kv_cache_tensors
    }


Allocate = Callable[[Any], dict[str, torch.Tensor]]
both = pytest.mark.parametrize("allocate", [of_runner_1, of_runner_2])


def made(kv_cache: Any) -> Any:
    from gpuwm.vllm.cache import Cache

    return Cache(kv_cache, "host", CPU)


@both
def test_what_vllm_allocates_lies_in_the_reservation(allocate: Allocate) -> None:
    sizes = (BLOCK, BLOCK, 3 * PAGE, BLOCK)
    kv_cache = config(*sizes)
    cache = made(kv_cache)
    with cache.reserved():
        layers = list(allocate(kv_cache).values())
        other = torch.zeros(5, dtype=torch.int8, device=CPU)
    assert [layer.nbytes for layer in layers] == list(sizes)
    layers[0][5] = 7
    assert layers[1][5] == 7  # one block behind all
    assert other.sum() == 0
    assert cache.occupy(0.0)["bytes"] == 4 * BLOCK
    assert all(layer.sum() == 0 for layer in layers)
    for number, layer in enumerate(layers):
        layer.fill_(number)
    assert [int(layer[-1]) for layer in layers] == [0, 1, 2, 3]


@pytest.mark.skipif(ONE, reason="all layers share one")
@both
def test_packed_layers_share_one(allocate: Allocate) -> None:
    kv_cache = config(BLOCK, BLOCK, packed=True)
    cache = made(kv_cache)
    with cache.reserved():
        one, other = allocate(kv_cache).values()
    assert one.data_ptr() == other.data_ptr()
    assert cache.occupy(0.0)["bytes"] == BLOCK


def test_what_is_allocated_later_is_memory_of_its_own() -> None:
    kv_cache = config(BLOCK)
    cache = made(kv_cache)
    with cache.reserved():
        (layer,) = of_runner_2(kv_cache).values()
        again = torch.zeros(BLOCK, dtype=torch.int8, device=CPU)
    later = torch.zeros(BLOCK, dtype=torch.int8, device=CPU)
    layer.fill_(1)
    assert again.sum() == later.sum() == 0


def test_a_cache_that_is_allocated_in_another_way_is_refused() -> None:
    cache = made(config(BLOCK, BLOCK))

    def allocate() -> None:
        with cache.reserved():
            torch.zeros(BLOCK, dtype=torch.int8, device=CPU)
            torch.empty(BLOCK, dtype=torch.int8, device=CPU)

    with pytest.raises(gpuwm.Unsupported, match="1 of 1" if ONE else "1 of 2 tensors"):
        allocate()


def test_a_cache_that_was_not_allocated_at_all_is_refused() -> None:
    cache = made(config(BLOCK))
    with pytest.raises(gpuwm.Unsupported, match="1 of 1 tensors"):
        cache.check_reserved()
    with cache.reserved():
        of_runner_2(config(BLOCK))
    cache.check_reserved()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"connector": True}, "KV connector"),
        ({"sleep": True}, "sleep mode"),
        ({"media": True}, "decodes on the GPU"),
        ({}, ""),
    ],
)
def test_what_a_standby_can_not_have(changed: dict[str, bool], words: str) -> None:
    from gpuwm.vllm import cache

    given: Any = types.SimpleNamespace(
        kv_transfer_config=object() if changed.get("connector") else None,
        model_config=types.SimpleNamespace(
            enable_sleep_mode=bool(changed.get("sleep")),
            multimodal_config=types.SimpleNamespace(
                mm_ipc_gpu_memory_gb=1.0 if changed.get("media") else 0.0
            ),
        ),
    )
    if not words:
        cache.check(given)
        return
    with pytest.raises(gpuwm.Unsupported, match=words):
        cache.check(given)
