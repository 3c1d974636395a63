"""Imports vLLM once, and forks an engine for each line of its stdin: imports are most of a start.

    starter.py PROGRAM [few]
PROGRAM is engine.py, or what stands in for it and needs no vLLM. A request is {"options", "stdin",
"log"}: engine.py's options, a fifo and a file. It prints {"ready"} with the seconds of the imports,
{"pid"} for each request, and {"ended", "status"} for each engine that ended. It has no CUDA context
and never asks the driver, since neither survives a fork; if an import does, it fails, and "few"
leaves out all imports but vLLM itself. It ends when its stdin does."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import select
import sys
import time
import traceback
from typing import Any

from engine import Options

# vLLM imports these while it starts; without them each engine would.
MODULES = (
    "vllm.v1.engine.llm_engine",
    "vllm.v1.engine.core",
    "vllm.v1.worker.gpu_worker",
    "vllm.v1.worker.gpu_model_runner",
    "vllm.v1.worker.gpu.model_runner",
    "vllm.v1.executor.multiproc_executor",
    "vllm.model_executor.model_loader",
    "vllm.model_executor.models.llama",
    "vllm.model_executor.models.qwen3_moe",
    "vllm.compilation.backends",
    "torch._inductor.compile_fx",
)
UVM = "/dev/nvidia-uvm"
CHILDREN_S = 0.02  # between two looks at which children ended


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def imports() -> dict[str, float]:
    begin = time.perf_counter()
    import torch

    torch_s = time.perf_counter() - begin
    begin = time.perf_counter()
    from vllm import LLM  # noqa: F401

    vllm_s = time.perf_counter() - begin
    begin = time.perf_counter()
    for name in MODULES if "few" not in sys.argv[2:] else ():
        importlib.import_module(name)
    if torch.cuda.is_initialized() or driver_is_open():
        sys.exit("starter.py: an import has initialised CUDA: engines can't be forked from here")
    others = time.perf_counter() - begin
    return {"import torch": torch_s, "import vllm": vllm_s, "import the rest": others}


def driver_is_open() -> bool:
    """CUDA keeps this device open from its initialisation on; NVML does not open it."""
    return any(
        os.readlink(path) == UVM
        for path in pathlib.Path("/proc/self/fd").iterdir()
        if path.exists()
    )


def child(request: dict[str, Any]) -> None:
    """Never returns."""
    status = 1
    try:
        os.setsid()  # what it starts ends with it: a signal to its group
        out = os.open(request["log"], os.O_WRONLY | os.O_APPEND)
        for number in (1, 2):
            os.dup2(out, number)
        os.dup2(os.open(request["stdin"], os.O_RDONLY), 0)
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        program = importlib.import_module(pathlib.Path(sys.argv[1]).stem)
        program.run(Options(**request["options"]))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        tell(ended=pid, status=os.waitstatus_to_exitcode(status))


def main() -> None:
    tell(ready=imports() if pathlib.Path(sys.argv[1]).name == "engine.py" else {})
    while True:
        readable, _, _ = select.select([sys.stdin], [], [], CHILDREN_S)
        reap()
        if not readable:
            continue
        line = sys.stdin.readline()
        if not line:
            return
        pid = os.fork()
        if not pid:
            child(json.loads(line))
        tell(pid=pid)


if __name__ == "__main__":
    main()
