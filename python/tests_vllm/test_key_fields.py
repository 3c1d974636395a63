"""Keys from vLLM's own configurations and models."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import torch

import gpuwm
from gpuwm.vllm import arguments, backends, differences, identity, keys, variables

from .conftest import RELEASE, serve_parser

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's imports warn

KINDS = ("dense", "tied", "experts", "latent", "fp8")
KEY_FIELDS_MAX = 64  # base/limits.h


@pytest.fixture(scope="module", autouse=True)
def _ranks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """vLLM's process groups of one process, and the operators that its layers look for."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    meet = tmp_path_factory.mktemp("meet") / "file"
    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(1, 0, f"file://{meet}", 0, "gloo")
        parallel_state.ensure_model_parallel_initialized(1, 1)
    yield
    parallel_state.destroy_model_parallel()
    parallel_state.destroy_distributed_environment()


def config(folder: pathlib.Path, **arguments: Any) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(
        model=str(folder),
        skip_tokenizer_init=True,
        **{"dtype": "bfloat16", "max_model_len": 64, "enforce_eager": True, **arguments},
    ).create_engine_config()


def layout(found: Any) -> dict[str, str]:
    return keys.layout(found, found.model_config)


def built(found: Any) -> torch.nn.Module:
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    with set_default_torch_dtype(torch.bfloat16), torch.device("meta"):
        model: torch.nn.Module = initialize_model(found)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_a_layout_is_equal_in_every_engine_and_after_the_build(
    checkpoints: pathlib.Path, kind: str
) -> None:
    first, second = (config(checkpoints / kind) for _ in range(2))
    expected = layout(first)
    assert layout(second) == expected
    chosen = backends.backends(built(first))
    assert layout(first) == expected
    assert backends.backends(built(second)) == chosen
    whole = {**identity.identity(first.model_config), **expected, **chosen}
    assert len(whole) <= KEY_FIELDS_MAX
    assert all(0 < len(value.encode()) <= 255 for value in whole.values())


def test_kinds_of_models_have_the_backends_that_they_use(checkpoints: pathlib.Path) -> None:
    found = {kind: backends.backends(built(config(checkpoints / kind))) for kind in KINDS}
    assert "UnquantizedLinearMethod x" in found["dense"]["backends.linear"]
    assert "CPU" in found["dense"]["backends.attention"].upper()
    assert "backends.moe" not in found["dense"]
    assert "UnquantizedFusedMoEMethod" in found["experts"]["backends.moe"]
    assert "Fp8LinearMethod/" in found["fp8"]["backends.linear"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"dtype": "float32"}, "dtype"),
        ({"kv_cache_dtype": "fp8"}, "cache"),
        ({"quantization": "fp8"}, "quantization"),
        ({"hf_overrides": {"rms_norm_eps": 0.5}}, "config"),
        ({"attention_backend": "TRITON_ATTN"}, "attention"),
        ({"linear_backend": "torch"}, "linear"),
        ({"enable_lora": True}, "lora"),
        ({"runner": "pooling", "convert": "embed"}, "model"),
    ],
)
def test_an_option_of_vllm_changes_its_field(
    checkpoints: pathlib.Path, arguments: dict[str, Any], field: str
) -> None:
    one, other = (
        layout(config(checkpoints / "dense")),
        layout(config(checkpoints / "dense", **arguments)),
    )
    assert [name for name in one if one[name] != other.get(name)] == [field]


@pytest.mark.parametrize(
    "arguments",
    [{"max_model_len": 32}, {"max_num_seqs": 4}, {"gpu_memory_utilization": 0.5}, {"seed": 7}],
)
def test_an_option_that_changes_no_weight_changes_no_field(
    checkpoints: pathlib.Path, arguments: dict[str, Any]
) -> None:
    other = config(checkpoints / "dense", **arguments)
    assert layout(other) == layout(config(checkpoints / "dense"))


def test_options_that_modules_hold_change_their_fields(checkpoints: pathlib.Path) -> None:
    for kind, one, other, field in (
        ("experts", {}, {"max_num_batched_tokens": 128}, "limits"),
        (
            "dense",
            {"runner": "pooling", "convert": "classify"},
            {"pooler_config": {"logit_mean": 0.5}},
            "pooler",
        ),
    ):
        first, second = (
            layout(config(checkpoints / kind, **arguments)) for arguments in (one, {**one, **other})
        )
        assert [name for name in first if first[name] != second.get(name)] == [field]


def test_a_difference_inside_the_configuration_is_named(checkpoints: pathlib.Path) -> None:
    one = config(checkpoints / "dense")
    other = config(checkpoints / "dense", hf_overrides={"rms_norm_eps": 0.5})
    metadata = {f"key.{name}": value for name, value in layout(one).items()}
    metadata.update(differences.details(one, one.model_config))
    with pytest.raises(gpuwm.Mismatch, match=r"\n  rms_norm_eps: 0.5 here, 1e-06 in the version"):
        differences.compare(
            "m@v", metadata, layout(other), differences.details(other, other.model_config)
        )


def test_the_table_of_variables_has_vllms_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm.envs as envs

    for name in variables.LAYOUT:
        monkeypatch.delenv(name, raising=False)
    assert variables.changed() == {}
    has = {name: getattr(envs, name) for name in variables.LAYOUT if name in dir(envs)}
    moved = {name for name, value in has.items() if value != variables.LAYOUT[name].default}
    # vLLM 0.33 switched two off that older releases have on.
    off = {"VLLM_ROCM_USE_AITER_FP4BMM", "VLLM_ROCM_USE_AITER_FP8BMM"}
    assert moved == (off if RELEASE >= (0, 33) else set())


def test_a_variable_of_the_table_is_read_as_vllm_reads_it(
    checkpoints: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_USE_DEEP_GEMM", "0")
    assert layout(config(checkpoints / "dense"))["environment"] == "VLLM_USE_DEEP_GEMM=false"


def served(folder: pathlib.Path, *given: str) -> Any:
    """The configuration that `vllm serve` makes of these arguments."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    always = ["--model", str(folder), "--skip-tokenizer-init", "--dtype", "bfloat16"]
    args = serve_parser().parse_args([*always, "--max-model-len", "64", *given])
    return AsyncEngineArgs.from_cli_args(args).create_engine_config()


def test_engines_that_differ_in_what_is_harmless_share(checkpoints: pathlib.Path) -> None:
    first = served(checkpoints / "dense")
    second = served(
        checkpoints / "dense",
        *("--port", "8123", "--host", "127.0.0.1", "--api-key", "secret", "--seed", "5"),
        *("--uvicorn-log-level", "debug", "--disable-log-stats", "--served-model-name", "other"),
        *("--max-model-len", "32", "--max-num-seqs", "7", "--gpu-memory-utilization", "0.5"),
        *("--max-num-batched-tokens", "4096", "--no-enable-prefix-caching", "--enforce-eager"),
        *("--max-logprobs", "3", "--generation-config", "vllm"),
    )
    assert layout(first) == layout(second)


def test_an_argument_that_is_in_no_table_counts(
    checkpoints: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuwm.vllm import harmless

    kept = tuple(each for each in harmless.FIELDS if each != "ModelConfig.max_logprobs")
    monkeypatch.setattr(harmless, "FIELDS", kept)
    found = layout(served(checkpoints / "dense", "--max-logprobs", "3"))
    assert '"ModelConfig.max_logprobs":3' in found["others"]


def test_all_fields_of_this_vllm_are_in_a_table() -> None:
    import dataclasses

    from vllm import config as configs

    unknown = [
        f"{kind.__name__}.{field.name}"
        for kind in (
            *(configs.VllmConfig, configs.ModelConfig, configs.CacheConfig, configs.LoadConfig),
            *(configs.ParallelConfig, configs.DeviceConfig, configs.KernelConfig),
            *(configs.CompilationConfig, configs.LoRAConfig, configs.MultiModalConfig),
            *(configs.MambaConfig, configs.OffloadConfig, configs.SpeculativeConfig),
        )
        for field in dataclasses.fields(kind)
        if not arguments.is_known(f"{kind.__name__}.{field.name}")
    ]
    holders = {"ModelConfig.multimodal_config"} | {
        f"VllmConfig.{name}_config"
        for name in (
            *("model", "cache", "parallel", "load", "device", "kernel", "compilation", "lora"),
            *("mamba", "offload", "speculative"),
        )
    }
    assert set(unknown) == holders
