"""Which attributes of vLLM's modules gpuwm.vllm treats apart."""

from __future__ import annotations

import fnmatch

import pytest

from gpuwm.vllm import attributes


@pytest.mark.parametrize(
    "path",
    [
        "model.layers.0.mlp.down_proj.workspace",
        "model.layers.0.mlp.down_proj.scheme.kernel.workspace",
        "deepstack_input_embeds[0]",
        "language_model.model._ds_buffers[3]",
        "model.layers.1.self_attn.indexer.topk_indices_buffer",
        "per_layer_embeddings",
        "model.self_decoder.positions",
    ],
)
def test_written(path: str) -> None:
    assert any(fnmatch.fnmatchcase(path, glob) for glob in attributes.WRITTEN)


WEIGHTS = ["model.embed_positions.weight", "layers.0.workspaces", "position"]


@pytest.mark.parametrize("path", WEIGHTS)
def test_weights_are_not_written(path: str) -> None:
    assert not any(fnmatch.fnmatchcase(path, glob) for glob in attributes.WRITTEN)


@pytest.mark.parametrize(
    "path",
    [
        *("model.do_not_compile", "model.norm._forward_method", "compiled"),
        *("layers.0.up_proj.weight.weight_loader", "layers.0.up_proj.qweight._packed_factor"),
    ],
)
def test_ignored(path: str) -> None:
    assert any(fnmatch.fnmatchcase(path, glob) for glob in attributes.IGNORED)
