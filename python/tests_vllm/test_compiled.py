"""What vLLM compiles stays with the version: vLLM's own compiler, on a CPU."""

from __future__ import annotations

import pathlib
import shutil

from conftest import Daemon

from tests_engines.engines import Engine
from tests_engines.starting import Start


def compiling(start: Start, folder: pathlib.Path) -> Engine:
    variables = {
        "VLLM_CACHE_ROOT": "vllm",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "TRITON_CACHE_DIR": "triton",
    }
    return start(
        "dense",
        load_format="gpuwm",
        enforce_eager=False,
        extra={"ref": "compiled@v1", "caches": "own"},
        # vLLM compiles with torch's own backend on a CPU, but for this
        changed={"compilation_config.mode": 3, "compilation_config.compile_sizes": []},
        environment={name: str(folder / where) for name, where in variables.items()},
    )


def test_the_second_engine_compiles_no_graph(
    daemon: Daemon, start: Start, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "home"
    first = compiling(start, folder)
    compiled, computed = first.ask("compile")
    assert (compiled["num_graphs_seen"], compiled["num_inductor_compiles"]) == (1, 1)
    assert " are kept as compiled@v1.caches-" in first.text()
    shutil.rmtree(folder)
    second = compiling(start, folder)
    compiled, computed_again = second.ask("compile")
    assert (compiled["num_graphs_seen"], compiled["num_inductor_compiles"]) == (0, 0)
    assert compiled["num_compiled_artifacts_loaded"] == 1
    assert computed_again == computed
    assert " lie in the folders of this engine's compilers now" in second.text()
    assert " are kept as " not in second.text()
