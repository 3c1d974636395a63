"""A gpuwmd for each test module, on host memory or, with GPUWM_TEST_BACKEND=fakecuda, on the
stand-in for CUDA's driver; checkpoints; what is asked of the environment (tests/python.sh):
GPUWM_BUILD, GPUWM_LIBRARY, and for fakecuda LD_LIBRARY_PATH."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from other_processes import Peer, peers

import gpuwm

BACKEND = os.environ.get("GPUWM_TEST_BACKEND", "host")
# The stand-in's devices are those of one name, which it reads once: this process's.
os.environ["FAKECUDA_RUN"] = f"python{os.getpid()}"
# A shell starts what it puts into the background with SIGINT ignored, and Python leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
START_S = 30
STILL_S = 120  # a script that used less than WORKS_S of a processor meanwhile hangs
WORKS_S = 0.3  # who only looks now and then uses less
CPU_MAX_S = 600  # a script that uses more goes round in circles
PR_SET_PDEATHSIG = 1
# As /proc has a system call: its number, and what it is asked for.
FUTEX, FUTEX_WAIT = {"x86_64": "202", "aarch64": "98"}[platform.machine()], "0x0"
_libc = ctypes.CDLL(None)
_HEADERS = sorted(pathlib.Path(__file__).parents[2].glob("include/gpuwm/*.h"))
_NAMES_OF_C = {name for file in _HEADERS for name in re.findall(r"\bgpuwm_\w+", file.read_text())}
# What no error may say to a user of Python: names of C, and its words. `p.detach()` is torch's. Of
# private_writes Python says writes="private", and errors say "private writes". A region is the
# library's word for a pool, a queue, blocks or scratch memory.
WORDS_OF_C = re.compile(
    rf"\b(?:{'|'.join(sorted(_NAMES_OF_C))}|NULL|private_writes|[Dd]etach(?!\()(?:ed|es)?)\b"
)
REGION = re.compile(r"(?<![\w./\"-])region(?![\w./\"-])")
on_host = pytest.mark.skipif(BACKEND != "host", reason="needs memory that the CPU reads")
# Models of these tests lie where the versions do.
DEVICE = "cuda" if BACKEND == "cuda" else "cpu"
by_torch = pytest.mark.usefixtures("default_device")
on_gpu = pytest.mark.skipif(BACKEND == "host", reason="needs memory of a GPU, or of the stand-in")
on_fakecuda = pytest.mark.skipif(BACKEND != "fakecuda", reason="needs the stand-in for the driver")

# name: an array, or (dtype as safetensors names it, shape, bytes)
Tensors = Mapping[str, "np.ndarray[Any, Any] | tuple[str, tuple[int, ...], bytes]"]
_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
}


def plan(name: str) -> str:
    """The text of a cut plan that is shipped."""
    return pathlib.Path(f"{os.environ['GPUWM_BUILD']}/share/gpuwm/cuts/{name}.cut").read_text()


def eventually(holds: Callable[[], Any], seconds: float = 30) -> Any:
    """Waits until it holds; what it gave."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.005)
    return found


async def until(holds: Callable[[], Any]) -> None:
    """As eventually, in a coroutine."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold"
        await asyncio.sleep(0.005)


def once(holds: Callable[[], Any], call: Callable[[], Any]) -> threading.Thread:
    """Makes the call on another thread, as soon as this holds."""

    def wait() -> None:
        eventually(holds)
        call()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def asleep(pid: int | None = None) -> int:
    """How many threads of a process sleep on a futex that processes share, as calls on a region do
    while they wait. The futexes of Python's own locks are private. None: this process."""
    found = 0
    for thread in pathlib.Path(f"/proc/{pid or os.getpid()}/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            call = (thread / "syscall").read_text().split()
            found += call[0] == FUTEX and call[2] == FUTEX_WAIT
    return found


def in_calls() -> list[threading.Thread]:
    """Threads of the package that are in a call."""
    return [thread for thread in threading.enumerate() if thread.name == "gpuwm wait"]


def interrupted(call: Callable[[], object], release: Callable[[], object]) -> None:
    """Presses Ctrl-C once the call waits, which must end it; a call that goes on is released."""
    main = threading.main_thread().ident
    assert main is not None
    late = threading.Timer(60, release)
    others = set(in_calls())  # that were left by themselves and go on

    def press() -> None:
        eventually(lambda: set(in_calls()) - others)
        signal.pthread_kill(main, signal.SIGINT)

    late.start()
    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        call()
    assert late.is_alive(), "the call went on"
    late.cancel()


def write_safetensors(path: pathlib.Path, tensors: Tensors) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    offset = 0
    for name, tensor in tensors.items():
        if isinstance(tensor, tuple):
            dtype, shape, data = tensor
        else:
            dtype, shape, data = _NAMES[str(tensor.dtype)], tensor.shape, tensor.tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [offset, offset + len(data)],
        }
        parts.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def _end_with_tests() -> None:
    """In the child: killed when the thread that started it ends, be it by a crash."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Daemon:
    """A gpuwmd of its own folder, and what operates it.

    - flags: more arguments of gpuwmd.
    - keeper: it runs under gpuwm-keeper, which starts it again, and it goes on with what it had.
    """

    def __init__(
        self, folder: pathlib.Path, flags: Sequence[str] = (), keeper: bool = False
    ) -> None:
        self.folder = folder
        self.flags = flags
        self.keeper = keeper
        self.socket = folder / "gpuwm.sock"
        self.models = folder / "models"
        self.models.mkdir()
        self.device = "host"
        self._process: subprocess.Popen[bytes] | None = None
        self._loaded = 0

    def start(self) -> None:
        log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._process = subprocess.Popen(
            [
                *(self._keeper() if self.keeper else ()),
                f"{os.environ['GPUWM_BUILD']}/bin/gpuwmd",
                *("--socket", str(self.socket)),
                *("--admin-socket", str(self.folder / "admin.sock")),
                *("--root", str(self.models)),
                *self.flags,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_end_with_tests,
        )
        os.close(log)
        self.admin = gpuwm.connect(self.socket, admin=True, wait=START_S)
        # Its devices come with the first loader.
        eventually(lambda: self.admin.status()["standby"], START_S)
        self.admin = gpuwm.connect(self.socket, admin=True)
        cuda = [device.id for device in self.admin.devices if device.is_cuda]
        self.device = cuda[0] if BACKEND != "host" else "host"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            # A keeper ends its gpuwmd too.
            self._process.send_signal(signal.SIGTERM if self.keeper else signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _keeper(self) -> Sequence[str]:
        program = f"{os.environ['GPUWM_BUILD']}/bin/gpuwm-keeper"
        return program, "--restart-delay", "0", "--runtime-dir", str(self.folder), "--"

    def child(self) -> int:
        """The pid of the gpuwmd that the keeper has started last."""
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return max(map(int, children))

    def restart(self) -> None:
        """kill -9 of a gpuwmd with a keeper; returns when the next one answers."""
        killed = self.admin.status()["pid"]
        os.kill(killed, signal.SIGKILL)
        self.admin = gpuwm.connect(self.socket, admin=True, wait=START_S)
        eventually(lambda: self.admin.status()["pid"] != killed, START_S)

    def load(self, name: str, tensors: Tensors, files: Mapping[str, bytes] | None = None) -> str:
        """Makes a checkpoint of them and loads it; the name."""
        self._loaded += 1
        folder = self.models / str(self._loaded)
        folder.mkdir()
        write_safetensors(folder / "model.safetensors", tensors)
        for file, content in (files or {}).items():
            (folder / file).write_bytes(content)
        self.load_folder(name, folder)
        return name

    def load_folder(self, name: str, folder: pathlib.Path, **options: Any) -> None:
        """Loads a folder beneath `models`. options: of Client.load."""
        assert self.admin.load(folder, name, devices=self.device, **options).wait(60)

    def leases(self, name: str) -> int:
        model, _, tag = name.partition("@")
        rows = [row for row in self.admin.list(model)["versions"] if row["tag"] == tag]
        return sum(row["leases"] for row in rows)


@contextlib.contextmanager
def running(*flags: str, keeper: bool = False) -> Iterator[Daemon]:
    """A gpuwmd with these arguments, which clients find by $GPUWM_SOCKET meanwhile."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuwm-py-"))
    socket_before = os.environ.get("GPUWM_SOCKET")
    os.environ["GPUWM_SOCKET"] = str(folder / "gpuwm.sock")
    started = Daemon(folder, flags, keeper)
    try:
        started.start()
        yield started
    finally:
        started.kill()
        if sys.exc_info()[0] is not None:
            print((folder / "log").read_text(errors="replace"))
        shutil.rmtree(folder)
        del os.environ["GPUWM_SOCKET"]
        if socket_before is not None:
            os.environ["GPUWM_SOCKET"] = socket_before


def pytest_runtest_logfinish() -> None:
    """Ends what a failed test held. Its frame and the error are in a cycle, and pytest keeps the
    error for a debugger: the leases of the test's tensors would count in the tests after it."""
    if getattr(sys, "last_traceback", None) is not None:
        sys.last_exc = sys.last_value = sys.last_traceback = None  # type: ignore[attr-defined]
        gc.collect()


@pytest.fixture(autouse=True)
def errors_of_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No error of the package in a test speaks of C. vLLM has a setting called "region"."""
    said: list[str] = []
    make = gpuwm.Error.__init__

    def made(error: gpuwm.Error, message: str, detail: str = "", **named: Any) -> None:
        make(error, message, detail, **named)
        text, maker = str(error), sys._getframe(1).f_globals["__name__"]
        of_c = (WORDS_OF_C,) if maker.startswith("gpuwm.vllm.") else (WORDS_OF_C, REGION)
        if any(words.search(text) for words in of_c):
            said.append(text)

    monkeypatch.setattr(gpuwm.Error, "__init__", made)
    yield
    assert said == []


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running() as started:
        yield started


@pytest.fixture(scope="module")
def peer(daemon: Daemon) -> Iterator[Peer]:
    """Another process. It imports torch, which takes seconds: one for a module."""
    with peers(1) as (one,):
        yield one


@pytest.fixture
def default_device() -> Iterator[None]:
    """Of what torch makes in the test."""
    if BACKEND == "fakecuda":
        pytest.skip("torch can't reach the stand-in's memory")
    if DEVICE == "cpu":
        yield
        return
    import torch

    torch.set_default_device(DEVICE)
    yield
    torch.set_default_device(None)


@pytest.fixture
def client(daemon: Daemon) -> gpuwm.Client:
    """A worker's."""
    return gpuwm.connect(daemon.socket)


@pytest.fixture
def checkpoint(daemon: Daemon, request: pytest.FixtureRequest) -> Callable[[Tensors], str]:
    """checkpoint({"weight": array, …}) loads these tensors, and tells "model@v1": a model of the
    test's own, loaded again as v2 and so on."""
    count = 0
    model = "".join(c if c.isalnum() else "-" for c in request.node.name)[-100:].lstrip("-")

    def load(tensors: Tensors, files: Mapping[str, bytes] | None = None) -> str:
        nonlocal count
        count += 1
        return daemon.load(f"{model}@v{count}", tensors, files)

    return load


def run_python(code: str, *arguments: str) -> str:
    """Runs a script in a process of its own, which must end well and say nothing on stderr."""
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as script:
        try:
            out, err = _said(script)
        finally:
            script.kill()
    assert (script.returncode, err) == (0, ""), (command, out, err)
    return out


def _said(script: subprocess.Popen[str]) -> tuple[str, str]:
    """What the script says until it ends. It may take as long as it works: on a busy machine the
    import of torch takes minutes."""
    used = 0.0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return script.communicate(timeout=STILL_S)
        before, used = used, cpu_seconds(script.pid)
        assert used - before > WORKS_S, f"{script.args!r} has stood still for {STILL_S} s"
        assert used < CPU_MAX_S, f"{script.args!r} has used {used:.0f} s of a processor"


def cpu_seconds(pid: int) -> float:
    """What a process has used, with those that it started and that have ended."""
    told = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, told[11:15])) / os.sysconf("SC_CLK_TCK")
