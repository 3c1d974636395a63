"""The facts of one release: what it has of what our plugin uses."""

from __future__ import annotations

import ast
import dataclasses
import json
import pathlib
import re
from typing import Any

from . import arguments
from .names import CLASS, MODULE, Found, Function, Names, is_abstract, parsed
from .plugin import Plugin
from .wheels import Texts

FOLDER = pathlib.Path(__file__).parent / "facts"
# A name of a function that writes weights. Where models, layers and kernels are, each function
# loads weights: there nobody looks.
_WRITES = re.compile(
    r"(?!_)(\w*(update|reload|receive|write|reset|sync|refit|rearrange|restore|begin|end|start"
    r"|finish|copy)\w*(weight|param)|\w*weight\w*(update|reload|sync|reset)"
    r"|(wake_up|sleep|reset_tensors)$)"
)
_NOT_ENGINES = re.compile(
    r"/(models|layers|third_party|kernels|tests?|benchmarks?|multimodal_gen|quantization|lora"
    r"|transformers_utils|hardware_backend)/"
)
# The seam by which vLLM asks the loader for the size of weights.
ASKS = "get_external_weight_memory"
# Seams for plugins like ours: what they are called in docs, and where they are. A name in brackets
# is a parameter.
SEAMS = {
    "vllm": {
        "SleepModeBackendFactory": "vllm.device_allocator.sleep_mode_backend"
        ".SleepModeBackendFactory",
        "kv_cache_allocation_context": "vllm.v1.worker.gpu_model_runner.GPUModelRunner"
        ".initialize_kv_cache(kv_cache_allocation_context)",
        ASKS: "vllm.model_executor.model_loader.base_loader.BaseModelLoader"
        ".get_external_weight_memory",
        "get_mem_pool_context": "vllm.distributed.kv_transfer.kv_connector.v1.base"
        ".KVConnectorBase_V1.get_mem_pool_context",
        "supports_pre_processed_weights": "vllm.model_executor.layers.quantization.base_config"
        ".QuantizeMethodBase.supports_pre_processed_weights",
    },
    "sglang": {
        "config_leaf": "sglang.srt.runtime_context.RuntimeContext.config_leaf",
        "record_fields": "sglang.srt.arg_groups.arg_utils.record_fields",
        "add_load_format_choices": "sglang.srt.server_args.add_load_format_choices",
        "HookRegistry": "sglang.srt.plugins.hook_registry.HookRegistry",
    },
}


@dataclasses.dataclass
class Facts:
    """What is committed of one release.

    - names: each name that the plugin imports, reads or calls: its signature if it is a function,
      or its kind. None: the release does not have it.
    - bases: the methods of each class from which a class of ours derives. abstract: those of them
      that a class has to define.
    - guarded: the public methods of each class that the plugin guards.
    - sources: of the texts that the plugin looks for in functions, those that are there.
    - seams: whether the release has them.
    - updates: all functions whose names say that they write weights.
    - arguments: by class. variables: of the environment.
    """

    engine: str
    release: str
    built: str
    torch: str
    names: dict[str, str | None]
    bases: dict[str, dict[str, str]]
    abstract: dict[str, list[str]]
    guarded: dict[str, list[str] | None]
    sources: dict[str, list[str]]
    seams: dict[str, bool]
    updates: list[str]
    arguments: dict[str, list[str]]
    variables: list[str]

    @property
    def title(self) -> str:
        return f"{self.engine} {self.release}"

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True) + "\n"


def file_of(engine: str, release: str, folder: pathlib.Path = FOLDER) -> pathlib.Path:
    return folder / f"{engine}-{release}.json"


def parse(text: str) -> Facts:
    return Facts(**json.loads(text))


def committed(engine: str, folder: pathlib.Path = FOLDER) -> list[Facts]:
    """Those of all releases of an engine, the oldest first."""
    found = [parse(file.read_text()) for file in folder.glob(f"{engine}-*.json")]
    return sorted(found, key=lambda each: order(each.release))


def order(release: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", release)]


def collect(texts: Texts, plugin: Plugin) -> Facts:
    names = Names(texts)
    used = {use.name for module in plugin.files for use in plugin.uses(module)}
    used |= set(hooks(plugin))
    for name in (each for row in guarded_functions(plugin) for each in row):
        used |= {name, place_of(name)}
    bases = {each.base for module in plugin.files for each in plugin.overrides(module)}
    wanted: dict[str, set[str]] = {}
    for source in plugin.sources():
        wanted.setdefault(source.name, set()).update(source.texts)
    classes = {base: names.find(base) for base in sorted(bases)}
    return Facts(
        engine=texts.engine,
        release=texts.release,
        built=texts.built,
        torch=texts.torch(),
        names={name: kind(names, name) for name in sorted(used)},
        bases={base: _methods(names, found) for base, found in classes.items()},
        abstract={base: _abstract(names, found) for base, found in classes.items()},
        guarded={path: _public(names, path) for path in sorted(guarded(plugin))},
        sources={name: _held(names, name, wanted[name]) for name in sorted(wanted)},
        seams={seam: _has(names, where) for seam, where in SEAMS[texts.engine].items()},
        updates=sorted(_updates(names)),
        arguments=arguments.of_release(names),
        variables=arguments.variables_of_release(names),
    )


def hooks(plugin: Plugin) -> list[str]:
    """The functions of SGLang that the plugin replaces."""
    return list(plugin.tables("hooks").get("HOOKS", {}))


def guarded(plugin: Plugin) -> dict[str, list[Any]]:
    """The classes of SGLang whose methods the plugin guards: always, some, harmless."""
    found = plugin.tables("guards").get("GUARDED", {})
    return found if isinstance(found, dict) else {}


def guarded_functions(plugin: Plugin) -> list[list[str]]:
    """The functions of vLLM that the plugin guards: of a row, the first whose module is there."""
    found = plugin.tables("guards").get("GUARDED", {})
    return [] if isinstance(found, dict) else found


def place_of(name: str) -> str:
    """The module of a function or of a method."""
    parts = name.split(".")
    return ".".join(parts[: -2 if parts[-2][:1].isupper() else -1])


def kind(names: Names, dotted: str) -> str | None:
    """As in `Facts.names`. A name of what is no module and no class, such as an attribute of a
    value, counts as there."""
    parts = dotted.split(".")
    for end in range(1, len(parts) + 1):
        found = names.find(".".join(parts[:end]))
        if found is None:
            return None
        if found.kind not in (MODULE, CLASS):
            return found.kind
    assert found is not None
    if found.kind == CLASS and (init := names.member(found, "__init__")) is not None:
        return f"{CLASS} {init.kind}"
    return found.kind


def _methods(names: Names, found: Found | None) -> dict[str, str]:
    if found is None or found.kind != CLASS:
        return {}
    methods = names.methods(found)
    return {
        name: methods[name].kind
        for name in sorted(methods)
        if not name.startswith("__") or name == "__init__"
    }


def _abstract(names: Names, found: Found | None) -> list[str]:
    if found is None or found.kind != CLASS:
        return []
    return sorted(name for name, each in names.methods(found).items() if is_abstract(each))


def _public(names: Names, path: str) -> list[str] | None:
    found = names.find(path)
    if found is None or found.kind != CLASS:
        return None
    return sorted(name for name in names.methods(found) if not name.startswith("_"))


def _held(names: Names, dotted: str, texts: set[str]) -> list[str]:
    found = names.find(dotted)
    source = "" if found is None or found.node is None else names.source(found)
    return sorted(text for text in texts if text in source)


def _has(names: Names, where: str) -> bool:
    dotted, _, parameter = where.rstrip(")").partition("(")
    found = names.find(dotted)
    return found is not None and (not parameter or parameter in found.kind)


def _updates(names: Names) -> set[str]:
    found = set()
    for path in names.texts.paths():
        if not path.startswith(f"{names.texts.engine}/") or _NOT_ENGINES.search(path):
            continue
        text = names.texts[path]
        if not any(_WRITES.match(name) for name in re.findall(r"def (\w+)", text)):
            continue
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for node in parsed(text).body:
            within = f"{module}.{node.name}" if isinstance(node, ast.ClassDef) else module
            for each in node.body if isinstance(node, ast.ClassDef) else [node]:
                if isinstance(each, Function) and _WRITES.match(each.name):
                    found.add(f"{within}.{each.name}")
    return found
