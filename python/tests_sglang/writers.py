"""Reads the text of a SGLang, and says which of its functions may write weights without a guard of
gpuwm's. Nothing of it is imported.

    PYTHONPATH=python python -m tests_sglang.writers FOLDER...

Each folder has a folder `sglang`, as site-packages and an unpacked wheel have. The program prints a
line for each function that nobody has looked at, and ends with 1 if there is any.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys
import warnings
from collections.abc import Collection, Iterator

_Function = ast.FunctionDef | ast.AsyncFunctionDef

# The functions of a model, of a layer and of loaders that write weights. Whatever else writes calls
# one of them, except what `WRITERS` has.
CALLED = frozenset(
    {
        *("load_weights", "default_weight_loader", "weight_loader", "load_state_dict"),
        *("process_weights_after_loading", "restore_weights_before_loading"),
        *("load_weights_and_postprocess", "postprocess_weights", "post_load_weights"),
    }
)
# Names of functions that write weights by themselves.
NAMED = re.compile(
    r"_*(update|receive|restore|reset|rearrange|import|refit|swap)_(\w+_)?(weight|expert)s?(_|$)"
)
# Folders of models, layers and loaders, and of devices that gpuwm does not know.
LEFT_OUT = ("models", "layers", "model_loader", "multimodal", "hardware_backend")
# By folder or file: why its functions do not write into shared weights.
KNOWN = {
    "checkpoint_engine/checkpoint_engine_worker.py": "WeightUpdater.update_weights_from_ipc",
    "checkpoint_engine/update.py": "asks a server, over HTTP",
    "elastic_ep": "--elastic-ep-backend and --enable-elastic-expert-backup are refused",
    "entrypoints": "asks the scheduler",
    "eplb": "ExpertLocationUpdater.update has a guard",
    "managers/tokenizer_control_mixin.py": "asks the scheduler",
    "managers/tokenizer_manager.py": "asks the scheduler",
    "managers/tp_worker.py": "asks WeightUpdater",
    "model_executor/model_runner.py:ModelRunner.init_weight_updater": "makes a WeightUpdater",
    "model_executor/model_runner.py:_gather_block_fp8_linear": "a copy of the engine's own",
    "model_executor/model_runner_components/weight_updater.py": "the functions of WeightUpdater",
    "managers/scheduler.py:Scheduler.init_weight_updater": "makes the class that has guards",
    "managers/scheduler_components/weight_updater.py": "asks WeightUpdater",
    "speculative/base_spec_worker.py": "asks WeightUpdater",
    "speculative/eagle_worker_v2.py": "asks WeightUpdater",
    "speculative/ngram_worker.py": "asks WeightUpdater",
    "speculative/uno_worker_v2.py": "asks WeightUpdater",
    "speculative/pp_draft_embedding.py": "a draft model with --pp-size above 1 is refused",
    "weight_sync/utils.py": "asks an engine",
}


def unknown(folder: pathlib.Path) -> list[str]:
    """The functions of the SGLang in this folder that may write weights and are not in `KNOWN`."""
    return [
        f"{place} may write weights ({name})"
        for place, name in _writers(folder / "sglang" / "srt")
        if not any(_lies_in(place, known) for known in KNOWN)
    ]


def _lies_in(place: str, known: str) -> bool:
    return place == known or place.startswith((f"{known}:", f"{known}/"))


def _writers(srt: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Functions that write weights, as FILE:CLASS.FUNCTION, and by which name that is seen."""
    for file in sorted(srt.rglob("*.py")):
        place = str(file.relative_to(srt))
        if not place.startswith(tuple(f"{each}/" for each in LEFT_OUT)):
            yield from _writers_below(_parse(file), place, [])


def _writers_below(node: ast.AST, place: str, names: Collection[str]) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        within = names
        if isinstance(child, _Function | ast.ClassDef):
            within = [*names, child.name]
            if isinstance(child, _Function) and NAMED.match(child.name):
                yield f"{place}:{'.'.join(within)}", child.name
        if isinstance(child, ast.Call) and (name := _called(child)) in CALLED:
            yield f"{place}:{'.'.join(within)}", name
        yield from _writers_below(child, place, within)


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _parse(file: pathlib.Path) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on escapes in SGLang's texts
        return ast.parse(file.read_text())


def main() -> None:
    found = [f"{each}: {line}" for each in sys.argv[1:] for line in unknown(pathlib.Path(each))]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
