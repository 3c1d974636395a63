"""SGLang's load format, as far as it goes without SGLang."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import gpuwm
from gpuwm.sglang import arguments, engines, hooks, identity, refusals, settings


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
        ({"dwdp_size": 2}, {}, "--dwdp-size 2"),
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


def test_a_start_that_fills_weights_later_is_refused() -> None:
    for serial in ({}, {"startup_weight_load_mode": "serial"}):
        refusals.check_start(SimpleNamespace(**serial))
    with pytest.raises(gpuwm.Unsupported, match="--startup-weight-load-mode overlap"):
        refusals.check_start(SimpleNamespace(startup_weight_load_mode="overlap"))


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
    auto = SimpleNamespace(load_format="auto")
    hooks.load_config(asked.append, auto)
    assert asked == [auto]
    assert hooks.get_model_loader(lambda *given: given, auto, 7) == (auto, 7)


StandIn = Callable[..., ModuleType]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """stand_in("sglang.srt.x", name=value, …) makes a module of SGLang with these names."""

    def make(path: str, **names: Any) -> ModuleType:
        module = ModuleType(path)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, path, module)
        parent, _, name = path.rpartition(".")
        if parent:
            monkeypatch.setattr(
                sys.modules.get(parent) or make(parent), name, module, raising=False
            )
        return module

    return make


def hooked(function: Callable[..., Any], hook: Callable[..., Any]) -> Callable[..., Any]:
    """As SGLang's HookRegistry puts a hook around a function."""

    @functools.wraps(function)
    def wrapper(*args: Any, **named: Any) -> Any:
        return hook(function, *args, **named)

    return wrapper


def test_a_load_format_without_its_loader_is_refused(
    monkeypatch: pytest.MonkeyPatch, stand_in: StandIn
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.6.0")
    loader = stand_in("sglang.srt.model_loader.loader", get_model_loader=lambda *given: given)
    seen: list[str] = []

    def load(**named: Any) -> Any:
        config = SimpleNamespace(load_format="gpuwm", **named)
        hooks.load_config(lambda config: seen.append(config.load_format), config)
        return config.load_format

    named = "SGLang 0.6.0: gpuwm's hook on sglang.srt.model_loader.loader.get_model_loader"
    with pytest.raises(gpuwm.Unsupported, match=named):
        load()
    found = hooked(loader.get_model_loader, hooks.get_model_loader)
    again = hooked(found, lambda f, *given: f(*given))  # another plugin's
    vars(loader)["get_model_loader"] = again
    assert load() == "gpuwm"
    assert seen == ["auto"]
    with pytest.raises(gpuwm.Unsupported, match="--weight-cache-mode client"):
        load(weight_cache_mode="client")
    del vars(loader)["get_model_loader"]
    with pytest.raises(gpuwm.Unsupported, match=named):
        load()


def test_register_says_what_is_missing_and_does_not_raise(
    caplog: pytest.LogCaptureFixture, stand_in: StandIn
) -> None:
    choices = ["auto"]
    stand_in("sglang.srt.server_args", LOAD_FORMAT_CHOICES=choices)
    stand_in("sglang.srt.plugins.hook_registry")
    gpuwm.sglang.register()
    assert "can't have the load format gpuwm" in caplog.text
    assert "HookRegistry" in caplog.text
    assert choices == ["auto"]


ABSENT = object()  # msgspec's mark of a field that has no default


def field(name: str, default: Any = ABSENT, factory: Any = ABSENT) -> Any:
    return SimpleNamespace(name=name, default=default, default_factory=factory)


FIELDS = (
    field("model_path"),
    field("attention_backend", None),
    field("fused_layers", factory=lambda: ["all"]),
    field("port", 30000),
    field("fuse_everything", False),
    field("vault_key", ""),
    field("_typed", False),
    field("spread", "on"),
    field("chosen", None),
)


def decided(stand_in: StandIn, **changed: Any) -> arguments.Arguments:
    """The arguments of SGLang 0.5.20 and newer: a Struct of msgspec, which has what the user typed.
    What SGLang decided is elsewhere: the backend of attention, and what a test changes."""
    typed = SimpleNamespace(attention_backend=None)
    in_effect = {each.name: each.default for each in FIELDS}
    in_effect |= {"model_path": "llama", "fused_layers": ["all"], "attention_backend": "fa3"}
    in_effect |= changed
    context = SimpleNamespace(config_leaf=in_effect.__getitem__)
    stand_in(
        "sglang.srt.runtime_context", get_server_args=lambda: typed, get_context=lambda: context
    )
    stand_in("sglang.srt.arg_groups.arg_utils", record_fields=lambda kind: FIELDS)
    return arguments.decided()


def test_arguments_of_a_struct(stand_in: StandIn) -> None:
    found = decided(stand_in, port=1, _typed=True)
    assert found.model_path == "llama"
    assert getattr(found, "nnodes", 7) == 7
    assert arguments.changed(found, "attention") == {"attention_backend": "fa3"}
    assert arguments.others(found) == {}


def test_arguments_of_a_dataclass(stand_in: StandIn) -> None:
    """SGLang 0.5.16 to 0.5.19."""

    @dataclasses.dataclass
    class ServerArgs:
        model_path: str
        attention_backend: str | None = None
        fused_layers: list[str] = dataclasses.field(default_factory=lambda: ["all"])
        fuse_everything: bool = False

    typed = ServerArgs("llama", "fa3")
    stand_in(
        "sglang.srt.runtime_context", get_server_args=lambda: typed, get_context=SimpleNamespace
    )
    stand_in("sglang.srt.arg_groups.arg_utils")
    found = arguments.decided()
    assert found.model_path == "llama"
    assert arguments.changed(found, "attention") == {"attention_backend": "fa3"}
    assert arguments.others(found) == {}


def test_an_argument_that_gpuwm_does_not_know_counts(stand_in: StandIn) -> None:
    changed = {"fuse_everything": True, "spread": None, "chosen": ""}
    found = arguments.others(decided(stand_in, **changed, vault_key="open sesame"))
    assert found.keys() == {"fuse_everything", "spread", "vault_key"}
    assert (found["fuse_everything"], found["spread"]) == (True, None)
    assert "sesame" not in found["vault_key"]  # whoever may see a version can read its key
