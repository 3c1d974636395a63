"""shared-tensor's own examples and tests, as they are, on this machine's GPU."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence

from common import row

LIMIT_S = 180
MODEL = "models--bert-base-uncased"
COMMIT = "0" * 40  # of the model's snapshot, which has random weights
ENABLED = {"SHARED_TENSOR_ENABLED": "1"}

# The README's server of a module of definitions, and what a client does with it.
SERVER = """
import sys
from importlib import import_module
from shared_tensor import SharedTensorServer
SharedTensorServer(import_module(f"examples.{sys.argv[1]}").provider).start(blocking=True)
"""
CLIENTS = {
    "basic_service": """
import torch
from shared_tensor import SharedTensorClient
client = SharedTensorClient()
y = client.call("build_linear_model")(torch.ones(1, 4, device="cuda"))
assert y.tolist() == [[5.5, 5.5]], y
x = torch.arange(4.0, device="cuda")
assert torch.equal(client.call("echo_tensor", x), x)
""",
    "model_service": """
import torch
from shared_tensor import SharedObjectHandle, SharedTensorClient
client = SharedTensorClient()
result = client.call("load_linear_model", input_dim=4, output_dim=2)
assert isinstance(result, SharedObjectHandle)
with result as handle:
    y = handle.value(torch.ones(1, 4, device="cuda"))
assert y.tolist() == [[3.0, 3.0]], y
x = torch.ones(4, device="cuda")
assert client.call("scale_tensor", x, 2 * x).tolist() == [2.0] * 4
""",
    "async_service": """
import torch
from shared_tensor import AsyncSharedTensorClient
client = AsyncSharedTensorClient()
task = client.submit("build_delayed_model", delay=0.1)
model = client.wait_for_task(task, timeout=30)
assert model(torch.ones(1, 8, device="cuda")).shape == (1, 4)
x = torch.arange(4.0, device="cuda")
assert torch.equal(client.wait_for_task(client.submit("clone_tensor_async", x)), x)
""",
}


class Examples:
    """folder: with `examples`, `tests` and `pyproject.toml` of its repository, and not the package
    itself: the installed one is used."""

    def __init__(self, folder: pathlib.Path, cache: pathlib.Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "HF_HUB_CACHE": str(cache),
            "HF_HUB_OFFLINE": "1",
            "SHARED_TENSOR_LOG_LEVEL": "WARNING",
        }

    def python(
        self, *words: str, stdin: str = "", more: Mapping[str, str] = ENABLED
    ) -> tuple[bool, str]:
        """Whether it ended well, and what it said last."""
        process = self._started(words, more)
        try:
            said, _ = process.communicate(stdin, timeout=LIMIT_S)
            return process.returncode == 0, said
        except subprocess.TimeoutExpired:
            return False, f"no end within {LIMIT_S} s"
        finally:
            end(process)

    def _started(self, words: Sequence[str], more: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-u", *words],
            cwd=self.folder,
            env=self.environment | dict(more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    @contextlib.contextmanager
    def server(self, *words: str, ready: str = "") -> Iterator[None]:
        """A program that goes on, after a line with `ready`. Clients retry until it listens."""
        process = self._started(words, ENABLED | {"SHARED_TENSOR_ROLE": "server"})
        assert process.stdout is not None
        late = threading.Timer(LIMIT_S, process.kill)
        late.start()
        said = ready and next((line for line in process.stdout if ready in line), "")
        late.cancel()
        drain = threading.Thread(target=process.stdout.read, daemon=True)
        drain.start()
        try:
            if ready and not said:
                raise RuntimeError(f"its server did not say {ready!r}")
            yield
        finally:
            end(process)
            drain.join()


def end(process: subprocess.Popen[str]) -> None:
    """With all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def result(name: str, found: tuple[bool, str]) -> None:
    """Their failures are figures, and no failures of this program."""
    well, said = found
    row(name, "passes" if well else "FAILS")
    for line in said.splitlines()[-6:]:
        print(f"    | {line[:400]}", flush=True)


def bert(cache: pathlib.Path) -> None:
    """A random model where the examples look for bert-base-uncased."""
    import transformers

    folder = cache / MODEL
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    model = transformers.BertModel(transformers.BertConfig())
    model.save_pretrained(folder / "snapshots" / COMMIT)


def services(examples: Examples) -> None:
    for name, code in CLIENTS.items():
        with examples.server("-c", SERVER, name):
            result(f"{name}.py", examples.python("-c", code))


def zero_branch(examples: Examples) -> None:
    name = "examples/zero_branch_env.py"
    with examples.server(name, ready="y from server"):
        result("zero_branch_env.py, client", examples.python(name, stdin="\n" * 9))
    result("zero_branch_env.py, alone", examples.python(name, stdin="\n" * 9, more={}))


def models(examples: Examples) -> None:
    demo = "examples/transformers_two_proc_demo.py"
    with examples.server(demo, ready="SERVER_READY"):
        result("transformers_two_proc_demo.py, client", examples.python(demo))
    for name, ready in (
        ("transformers_ipc_benchmark.py", "server_model_ready"),
        ("transformers_two_proc_trace.py", ""),
    ):
        with examples.server(f"examples/{name}", "server", ready=ready):
            result(f"{name} client", examples.python(f"examples/{name}", "client"))
    for name in ("transformers_mutation_check.py", "transformers_restore_profile.py"):
        result(name, examples.python(f"examples/{name}", more={}))


def tests(examples: Examples) -> None:
    for mark in ("not gpu", "gpu"):
        # Without its options, which need a package for coverage.
        words = ("-m", "pytest", "-o", "addopts=", "-q", "-p", "no:cacheprovider", "--tb=line")
        result(f'its tests, pytest -m "{mark}"', examples.python(*words, "-m", mark, more={}))


def run(folder: pathlib.Path) -> None:
    print("shared-tensor's own examples", flush=True)
    with tempfile.TemporaryDirectory() as cache:
        bert(pathlib.Path(cache))
        examples = Examples(folder, pathlib.Path(cache))
        for each in (services, zero_branch, models, tests):
            try:
                each(examples)
            except Exception as error:
                result(each.__name__, (False, f"{type(error).__name__}: {error}"))
