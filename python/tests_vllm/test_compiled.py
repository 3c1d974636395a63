"""What vLLM compiles stays with the version: vLLM's own compiler, on a CPU."""

from __future__ import annotations

import pathlib
import shutil

import pytest
from conftest import Daemon

from gpuwm.vllm import compiled
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
    counted, computed = first.ask("compile")
    assert (counted["num_graphs_seen"], counted["num_inductor_compiles"]) == (1, 1)
    assert " are kept as compiled@v1.caches-" in first.text()
    assert "for that, start it with --worker-cls gpuwm.vllm.Worker" in first.text()
    shutil.rmtree(folder)
    second = compiling(start, folder)
    counted, computed_again = second.ask("compile")
    assert (counted["num_graphs_seen"], counted["num_inductor_compiles"]) == (0, 0)
    assert counted["num_compiled_artifacts_loaded"] == 1
    assert computed_again == computed
    assert " lie in the folders of this engine's compilers now" in second.text()
    assert " are kept as " not in second.text()


def test_the_folders_are_vllms_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DG_JIT_CACHE_DIR", "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("VLLM_CACHE_ROOT", "~/root")
    monkeypatch.setenv("HOME", "/home/me")
    own = {name: path for name, path in compiled._roots().items() if path.startswith("/home/me/r")}
    assert own == {
        "vllm": "/home/me/root/torch_compile_cache",
        "deep_gemm": "/home/me/root/deep_gemm",
        "autotune": "/home/me/root/flashinfer_autotune_cache",
    }
    monkeypatch.delenv("VLLM_CACHE_ROOT")
    assert compiled._roots()["vllm"] == "/home/me/.cache/vllm/torch_compile_cache"
