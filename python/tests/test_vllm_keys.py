"""Keys and names of vLLM's versions, without vLLM: its configurations are stood in for."""

import dataclasses
import importlib.metadata
import logging
import re
import sys
import types
from typing import Any

import pytest

import gpuwm
from gpuwm.engines import differences as shared
from gpuwm.engines import fields, texts
from gpuwm.vllm import arguments, differences, engines, keys, variables


@dataclasses.dataclass
class AttentionConfig:
    backend: object = None
    mla_prefill_backend: object = None
    flash_attn_max_num_splits_for_cuda_graph: int = 32


class HfConfig:
    def __init__(self, **entries: Any) -> None:
        self.entries = {"num_hidden_layers": 2, "hidden_size": 64, **entries}

    def to_dict(self) -> Any:
        return dict(self.entries)


def named(**entries: Any) -> Any:
    return types.SimpleNamespace(**entries)


def model_config(hf: Any = None, **changes: Any) -> Any:
    config = HfConfig(**(hf or {}))
    found = named(
        model="/models/llama",
        architecture="LlamaForCausalLM",
        built=type("LlamaForCausalLM", (), {"__module__": "vllm.model_executor.models.llama"}),
        runner_type="generate",
        convert_type="none",
        dtype="bfloat16",
        quantization=None,
        hf_config=config,
        hf_text_config=config,
        multimodal_config=None,
        max_model_len=4096,
        is_moe=False,
    )
    vars(found).update(changes)
    return found


def vllm_config(**changes: Any) -> Any:
    found = named(
        parallel_config=named(
            tensor_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            cp_kv_cache_interleave_size=1,
            enable_expert_parallel=False,
            enable_eplb=False,
            expert_placement_strategy="linear",
            all2all_backend="allgather_reducescatter",
        ),
        cache_config=named(cache_dtype="auto"),
        attention_config=AttentionConfig(),
        kernel_config=named(linear_backend="auto", moe_backend="auto"),
        scheduler_config=named(max_num_batched_tokens=8192, enable_chunked_prefill=True),
        compilation_config=named(max_cudagraph_capture_size=512),
        kv_transfer_config=None,
        speculative_config=None,
        quant_config=None,
        lora_config=None,
    )
    for name, value in changes.items():
        holder, _, leaf = name.rpartition("__")
        setattr(getattr(found, holder) if holder else found, leaf, value)
    return found


@pytest.fixture(autouse=True)
def vllm(monkeypatch: Any) -> Any:
    """A package vllm that has what keys ask of it. Its envs can be set."""
    envs = types.ModuleType("vllm.envs")
    for name, variable in variables.LAYOUT.items():
        setattr(envs, name, variable.default)
    platforms: Any = types.ModuleType("vllm.platforms")
    platforms.current_platform = named(is_cpu=lambda: True)
    loaders: Any = types.ModuleType("vllm.model_executor.model_loader.utils")
    loaders.get_model_architecture = lambda config: (config.built, config.architecture)
    package: Any = types.ModuleType("vllm")
    package.envs = envs
    monkeypatch.setattr(arguments, "others", lambda *_: "")  # it has tests of its own
    for module in (package, envs, platforms, loaders):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    version = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "0.25.1" if name == "vllm" else version(name)
    )
    return package


def layout(config: Any = None, model: Any = None, prefix: Any = "", at: Any = None) -> Any:
    return keys.layout(config or vllm_config(), model or model_config(), prefix, at or keys.Ranks())


def differing(one: Any, other: Any) -> Any:
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def test_the_layout_is_equal_for_equal_configurations() -> None:
    assert layout() == layout()


@pytest.mark.parametrize(
    ("field", "config", "model"),
    [
        ("model", {}, {"architecture": "Qwen3ForCausalLM"}),
        ("model", {}, {"built": HfConfig}),  # a class of the same name that is a plugin's
        ("model", {}, {"convert_type": "embed"}),
        ("dtype", {}, {"dtype": "float16"}),
        ("quantization", {}, {"quantization": "fp8"}),
        ("quantization", {}, {"quantization_config": {"linear": {"weight": "fp8"}}}),
        ("config", {}, {"hf": {"rope_theta": 10000}}),
        ("role", {}, {"runner_type": "draft"}),
        ("tp", {"parallel_config__tensor_parallel_size": 2}, {}),
        ("pp", {"parallel_config__pipeline_parallel_size": 2}, {}),
        ("context", {"parallel_config__decode_context_parallel_size": 2}, {}),
        ("context", {"parallel_config__prefill_context_parallel_size": 2}, {}),
        ("context", {"parallel_config__cp_kv_cache_interleave_size": 16}, {}),
        ("cache", {"cache_config__cache_dtype": "fp8"}, {}),
        ("cache", {"cache_config__kv_sharing_fast_prefill": True}, {}),
        ("pooler", {}, {"pooler_config": {"logit_mean": 0.5}}),
        ("attention", {"attention_config__backend": "TRITON_ATTN"}, {}),
        ("attention", {"attention_config__mla_prefill_backend": "FLASHINFER"}, {}),
        ("linear", {"kernel_config__linear_backend": "marlin"}, {}),
        ("lora", {"lora_config": object()}, {}),
    ],
)
def test_a_setting_that_changes_weights_changes_its_field(
    field: Any, config: Any, model: Any
) -> None:
    assert field in differing(layout(), layout(vllm_config(**config), model_config(**model)))


@pytest.mark.parametrize(
    ("config", "model"),
    [
        ({"scheduler_config__max_num_batched_tokens": 16}, {"is_moe": True}),
        ({"compilation_config__max_cudagraph_capture_size": 16}, {"is_moe": True}),
        (
            {"scheduler_config__max_num_batched_tokens": 16},
            {"architecture": "Qwen3VLForConditionalGeneration"},
        ),
        (
            {
                "speculative_config": named(
                    num_speculative_tokens=3, draft_model_config=None, target_model_config=None
                )
            },
            {"is_hybrid": True},
        ),
    ],
)
def test_limits_count_for_models_that_hold_them(config: Any, model: Any) -> None:
    changed = layout(vllm_config(**config), model_config(**model))
    assert differing(layout(model=model_config(**model)), changed) == ["limits"]


def test_a_pooler_differs_in_what_its_modules_hold() -> None:
    plain, moved, longer, unchunked = (
        layout(vllm_config(**config), model_config(pooler_config=pooler))
        for config, pooler in (
            ({}, {"logit_mean": None}),
            ({}, {"logit_mean": 0.5}),
            ({}, {"logit_mean": None, "max_embed_len": 9}),
            ({"scheduler_config__enable_chunked_prefill": False}, {"logit_mean": None}),
        )
    )
    assert differing(plain, moved) == differing(plain, unchunked) == ["pooler"]
    assert longer == plain


def test_ranks_of_a_parallel_prefill_are_parts_of_one_version() -> None:
    config = vllm_config(parallel_config__prefill_context_parallel_size=2)
    one, other = (layout(config, at=keys.Ranks(context=rank)) for rank in range(2))
    assert differing(one, other) == ["context.rank"]
    names = {LOAD.derived_name(IDENTITY, each) for each in (one, other)}
    assert len(names) == 1


@pytest.mark.parametrize(
    ("config", "model"),
    [
        ({"parallel_config__data_parallel_size": 4}, {}),
        ({"scheduler_config__max_num_batched_tokens": 16}, {}),
        ({"kernel_config__moe_backend": "triton"}, {}),
        ({"attention_config__flash_attn_max_num_splits_for_cuda_graph": 4}, {}),
        ({}, {"max_model_len": 64}),
        ({}, {"hf": {"_name_or_path": "elsewhere", "transformers_version": "5.0"}}),
        ({}, {"model": "/elsewhere/fine-tuned"}),
    ],
)
def test_a_setting_that_changes_no_weights_changes_nothing(config: Any, model: Any) -> None:
    assert layout(vllm_config(**config), model_config(**model)) == layout()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ["experts", "experts.rank", "limits", "moe"]),
        ({"parallel_config__data_parallel_size": 4}, ["experts"]),
        ({"parallel_config__enable_expert_parallel": True}, []),
        ({"kernel_config__moe_backend": "triton"}, ["moe"]),
        ({"parallel_config__enable_dbo": True}, ["moe"]),
    ],
)
def test_experts_are_dealt_out_over_data_parallel_ranks_too(config: Any, expected: Any) -> None:
    moe = model_config(is_moe=True)
    before = layout(model=moe) if config else layout()
    assert sorted(differing(before, layout(vllm_config(**config), moe))) == expected


def test_long_rope_depends_on_the_length_that_was_asked_for() -> None:
    found = [
        layout(model=model_config({"rope_scaling": {"type": "longrope"}}, max_model_len=length))
        for length in (4096, 131072)
    ]
    assert differing(*found) == ["limits"]
    assert found[1]["limits"] == "max_model_len 131072"


@pytest.mark.parametrize("name", sorted(variables.LAYOUT))
def test_each_variable_of_the_table_is_named_when_it_is_not_the_default(
    vllm: Any, name: Any
) -> None:
    setattr(vllm.envs, name, "changed")
    assert layout()["environment"] == f"{name}=changed"


def test_a_variable_that_nobody_set_is_this_vllms_own(
    vllm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    del vllm.envs.VLLM_USE_DEEP_GEMM
    vllm.envs.__getattr__ = lambda name: name != "VLLM_USE_DEEP_GEMM"
    assert layout()["environment"] == "defaults"
    monkeypatch.setenv("VLLM_USE_DEEP_GEMM", "0")
    assert layout()["environment"] == "VLLM_USE_DEEP_GEMM=false"


def test_a_variable_that_this_vllm_lacks_is_left_out(
    vllm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_USE_DEEP_GEMM", "0")
    del vllm.envs.VLLM_USE_DEEP_GEMM
    assert layout()["environment"] == "defaults"


def test_a_variable_that_gpuwm_does_not_know_counts_and_is_told(
    vllm: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("VLLM_PACKED_BY_A_PLUGIN", "1")
    monkeypatch.setenv("VLLM_PORT", "8000")
    for _ in range(2):
        assert layout()["environment"] == "VLLM_PACKED_BY_A_PLUGIN=1"
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "VLLM_PACKED_BY_A_PLUGIN" in told[0]


def test_every_field_fits_a_key_of_gpuwm(vllm: Any) -> None:
    for name in variables.LAYOUT:
        setattr(vllm.envs, name, "x" * 50)
    model = model_config({"quantization_config": {"ignore": ["ä" * 100] * 9}}, is_moe=True)
    model.pooler_config = {"task": "z" * 300}
    model.multimodal_config = named(language_model_only=True)
    engine = vllm_config(
        attention_config__backend="y" * 300, parallel_config__prefill_context_parallel_size=2
    )
    found = layout(engine, model)
    assert all(len(value.encode()) <= 255 for value in found.values())
    assert len(found) + 6 <= 32  # three of identity, three of backends
    vllm.envs.VLLM_USE_DEEP_GEMM = "z" * 50
    assert differing(found, layout(engine, model)) == ["environment"]


# ---- names ----


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("/models/my llama (v2)", "my-llama--v2"),
        ("./llama/", "llama"),
        ("/cache/models--org--name/snapshots/" + "0" * 40, "org/name"),
        ("/models/..hidden..x", "hidden.x"),
        ("/models/" + "f" * 32, "model-" + "f" * 32),
        ("/", "model"),
        ("/models/äöü", "model"),
        ("x" * 300, "x" * 128),
    ],
)
def test_a_models_name_keeps_gpuwms_rules(path: Any, name: Any) -> None:
    assert fields.model_name(path) == name


IDENTITY = {"identity.weights": "a" * 64}
LOAD = engines.Load(None, model_config())


def test_all_ranks_derive_one_name() -> None:
    parallel = {"parallel_config__tensor_parallel_size": 2}
    names = {
        LOAD.derived_name(IDENTITY, layout(vllm_config(**parallel), at=keys.Ranks(tp=rank)))
        for rank in range(2)
    }
    assert len(names) == 1
    assert re.fullmatch("llama@vllm-[0-9a-f]{24}", names.pop())


def test_another_identity_layout_or_device_derives_another_name() -> None:
    other = layout(model=model_config(dtype="float16"))
    names = {
        LOAD.derived_name(IDENTITY, layout()),
        LOAD.derived_name({"identity.weights": "b" * 64}, layout()),
        LOAD.derived_name(IDENTITY, other),
        LOAD.derived_name(IDENTITY, layout(), ["GPU-1"]),
        LOAD.derived_name(IDENTITY, layout(), ["GPU-2", "GPU-1"]),
    }
    assert len(names) == 5
    assert LOAD.derived_name(IDENTITY, layout(), ["GPU-1", "GPU-2"]) in names


# ---- what differs ----


def stored(config: Any, model: Any) -> Any:
    key = {f"key.{name}": value for name, value in layout(config, model).items()}
    return {**key, **differences.details(config, model)}


def test_a_difference_names_both_values_and_the_option() -> None:
    metadata = stored(vllm_config(), model_config(dtype="float16"))
    with pytest.raises(gpuwm.Mismatch) as caught:
        differences.compare("llama@prod", metadata, layout())
    assert caught.value.message == (
        'llama@prod differs from this engine in dtype: this engine has "bfloat16", '
        'the version "float16"'
    )
    assert "--dtype" in caught.value.detail


def test_another_checkpoint_is_called_so() -> None:
    metadata = {"key.identity.weights": "b" * 64, "vllm.maker": '{"model": "/models/tuned"}'}
    with pytest.raises(gpuwm.Mismatch) as caught:
        differences.compare("llama@prod", metadata, IDENTITY)
    assert caught.value.message == (
        "llama@prod was made from another checkpoint than this engine loads, from /models/tuned: "
        f'in identity.weights, this engine has "{"a" * 64}", the version "{"b" * 64}"'
    )
    assert caught.value.detail.startswith("start the engine with the version's checkpoint")
    assert 'or with "mode": "load"' in caught.value.detail


@pytest.mark.parametrize("maker", ["no JSON", "{}", "[]", None])
def test_a_version_may_not_say_where_it_came_from(maker: str | None) -> None:
    metadata = {"key.identity.weights": "b"} | ({} if maker is None else {"vllm.maker": maker})
    with pytest.raises(gpuwm.Mismatch, match="than this engine loads: in identity.weights"):
        differences.compare("llama@prod", metadata, IDENTITY)


def test_a_difference_inside_a_configuration_is_named_by_its_entry() -> None:
    own = vllm_config(), model_config({"rope": {"theta": 1e4, "kind": "x"}})
    metadata = stored(vllm_config(), model_config({"rope": {"theta": 1e6, "kind": "x"}}))
    with pytest.raises(gpuwm.Mismatch, match=r"\n  rope.theta: 10000.0 here, 1000000.0 in the ver"):
        differences.compare("m@v", metadata, layout(*own), differences.details(*own))


def test_a_field_that_the_version_lacks_differs() -> None:
    with pytest.raises(gpuwm.Mismatch, match="has no field dtype in its key"):
        differences.compare("m@v", {}, {"dtype": "bfloat16"})


def test_what_is_equal_is_no_difference() -> None:
    differences.compare("m@v", stored(vllm_config(), model_config()), layout())


def test_values_that_a_setting_chose_are_named_once_they_were_changed(caplog: Any) -> None:
    impl = named(_k_scale=0.5, window=8)
    model = named(training=False, attn=named(training=False, impl=impl, sizes=[1]))
    derived = ["training", "attn.training", "attn.impl._k_scale", "attn._pending_indexer_wk_fp8"]
    log, written = logging.getLogger("test"), differences.WRITTEN_BY_LOADING
    shared.warn_of_values(log, "m@v", model, derived, written)
    assert caplog.messages == []
    several = [f"attn.sizes.{number}" for number in range(6)]
    found = [*derived, "attn.impl.window", *several]
    shared.warn_of_values(log, "m@v", model, found, written)
    (message,) = caplog.messages
    assert "than m@v in attn.impl.window, attn.sizes.0, " in message
    assert "attn.sizes.3 and 2 more" in message


# ---- texts ----


def test_a_plain_value_has_no_addresses_and_no_order() -> None:
    class Holder:
        pass

    one = {"b": {3, 1, 2}, "a": (1, None), "c": Holder(), "d": test_what_is_equal_is_no_difference}
    two = dict(reversed(list(one.items())), c=Holder())
    assert texts.canonical(one) == texts.canonical(two)
    assert "0x" not in texts.canonical(one)


def test_a_value_that_holds_itself_ends() -> None:
    loop: dict[str, Any] = {}
    loop["me"] = loop
    assert texts.canonical(loop) == '{"me":"(the object that holds this)"}'


def test_a_struct_of_msgspec_is_its_fields() -> None:
    struct = type("Struct", (), {"__struct_fields__": ("bits", "groups"), "cache": object()})()
    struct.bits, struct.groups = 4, [128]
    assert texts.canonical(struct) == '{"bits":4,"groups":[128]}'
