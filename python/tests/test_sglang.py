"""SGLang's load format, as far as it goes without SGLang."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import gpuwm
from gpuwm.sglang import engines, hooks, identity, refusals, settings


def test_importing_the_package_imports_neither_sglang_nor_torch() -> None:
    script = (
        "import sys, gpuwm.sglang, gpuwm.sglang.hooks, gpuwm.sglang.engines\n"
        "print(sorted({'sglang', 'vllm', 'torch', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_keys_that_vllm_s_load_format_has_too() -> None:
    given = {"ref": "llama@v1", "mode": "load", "wait": 3, "owner": "operator"}
    parsed = settings.parse(given)
    assert (parsed.ref, parsed.mode, parsed.wait, parsed.owner) == (
        "llama@v1",
        "load",
        3.0,
        ("operator",),
    )


# what is given, and words of the error
WRONG: dict[str, tuple[Any, tuple[str, ...]]] = {
    "no object": ([], ("--model-loader-extra-config is a list",)),
    "a misspelt key": ({"reff": "m@v"}, ('did you mean "ref"?',)),
    "a key on several engines": ({"engines": 4}, ("'engines'", "does not know in SGLang")),
    "a state of shards": ({"inner": "sharded_state"}, ("sharded state",)),
    "weights of another process": ({"inner": "remote_instance"}, ("plain checkpoint",)),
    "vLLM's": ({"inner": "instanttensor"}, ("a load format of SGLang",)),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named(what: str) -> None:
    given, words = WRONG[what]
    with pytest.raises(gpuwm.Invalid) as caught:
        settings.parse(given)
    assert all(word in str(caught.value) for word in words), caught.value


def test_only_keys_that_sglang_has_are_listed() -> None:
    with pytest.raises(gpuwm.Invalid) as caught:
        settings.parse([])
    assert caught.value.detail.endswith("wait, socket, private")


def server_args(**changed: Any) -> Any:
    plain = dict.fromkeys(refusals.REFUSED)
    return SimpleNamespace(
        **{**plain, "offload_group_size": -1, "nnodes": 1, "pp_size": 1, **changed}
    )


def model_config(**changed: Any) -> Any:
    return SimpleNamespace(**{"is_draft_model": False, "quantization": None, **changed})


def test_plain_arguments_are_accepted() -> None:
    refusals.check(server_args(), model_config())


@pytest.mark.parametrize(
    ("arguments", "config", "named"),
    [
        *(({name: "1"}, {}, flag) for name, (flag, _, _) in refusals.REFUSED.items()),
        ({"offload_group_size": 2}, {}, "--offload-group-size 2"),
        ({"nnodes": 2}, {}, "--nnodes 2"),
        ({"pp_size": 2}, {"is_draft_model": True}, "draft model"),
        ({}, {"quantization": "gguf"}, "--quantization gguf"),
    ],
)
def test_what_writes_into_weights_is_refused(
    arguments: dict[str, Any], config: dict[str, Any], named: str
) -> None:
    with pytest.raises(gpuwm.Unsupported, match="load format gpuwm refuses .*: ") as caught:
        refusals.check(server_args(**arguments), model_config(**config))
    assert named in str(caught.value)


def test_a_draft_has_a_ref_of_its_own() -> None:
    given = settings.parse({"ref": "llama@v1"})
    for number, ref in ((None, "llama@v1.draft"), (1, "llama@v1.draft1")):
        load_config = SimpleNamespace(draft_model_idx=number)
        draft = engines.Load(None, model_config(is_draft_model=True), load_config, "cpu")
        assert draft.ref(given) == ref
    assert engines.Load(None, model_config(), None, "cpu").ref(given) == "llama@v1"


def test_files_that_sglang_reads(tmp_path: Any) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"one")
    config = model_config(model_path=str(tmp_path), revision=None)
    found = identity.identity(SimpleNamespace(trust_remote_code=False), config, "auto", None)
    (tmp_path / "consolidated.safetensors").write_bytes(b"two")
    again = identity.identity(SimpleNamespace(trust_remote_code=False), config, "mistral", None)
    assert found["identity.weights"] != again["identity.weights"]
    none = identity.identity(SimpleNamespace(), config, "dummy", None)
    assert none["identity.kind"] == "none"


def test_other_load_formats_are_sglang_s_own() -> None:
    asked: list[Any] = []
    for load_format in ("auto", "gpuwm"):
        hooks.verify_load_format(asked.append, SimpleNamespace(load_format=load_format))
    assert [config.load_format for config in asked] == ["auto"]
    auto = SimpleNamespace(load_format="auto")
    assert hooks.get_model_loader(lambda *given: given, auto, 7) == (auto, 7)
