"""gpuwm-serve with made-up engines, for tests: a process of its own, and clients."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from conftest import eventually

ENGINE = pathlib.Path(__file__).with_name("made_up_engine.py")
GIB = 1 << 30
AWAKE_GIB = 10  # of a made-up engine
TIMES = {"min_awake": 0.05, "drain": 0.5, "sleep": 5, "wake": 10, "start": 30}


def command(how: Mapping[str, Any] | None = None, at: str = "{socket}") -> list[str]:
    return [sys.executable, str(ENGINE), at, "{name}", json.dumps(how or {})]


def is_alive(pid: int) -> bool:
    """What has ended and was not waited for counts as ended."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def toml(value: Any) -> str:
    """Of JSON's types, all of which TOML has; a table within another one is an inline one."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


class Serve:
    """A gpuwm-serve. tables, slots: as `serving` has them."""

    def __init__(
        self, folder: pathlib.Path, tables: Mapping[str, Mapping[str, Any]], slots: int
    ) -> None:
        self.folder = folder
        self.file = folder / "models.toml"
        self.log = folder / "serve.log"
        self.slots = slots
        self.port = 0
        (folder / "slots").mkdir()
        for number in range(slots):
            (folder / "slots" / str(number)).touch()
        self.write(tables)
        self._process: subprocess.Popen[bytes] | None = None
        self._listened = 0  # how often one has begun to

    def write(self, tables: Mapping[str, Mapping[str, Any]]) -> None:
        """models.toml, with a folder, a port, and what made-up engines need."""
        how = {"slots": str(self.folder / "slots")} if self.slots else {}
        models = {
            name: {
                "engine": "command",
                "command": command({**how, **model.get("how", {})}),
                "parks": True,
                "asleep": 0,
                "memory": AWAKE_GIB * GIB,
                **TIMES,
                **{key: value for key, value in model.items() if key != "how"},
            }
            for name, model in tables["models"].items()
        }
        budget = (self.slots or len(models)) * AWAKE_GIB * GIB
        serve = {"listen": "127.0.0.1:0", "folder": str(self.folder / "run")}
        found = {
            "devices": {"0": budget},
            **tables,
            "models": models,
            "serve": {**serve, **tables.get("serve", {})},
        }
        lines = []
        for name, table in found.items():
            lines += [f"[{name}]", *(f"{json.dumps(k)} = {toml(v)}" for k, v in table.items())]
        self.file.write_text("\n".join(lines) + "\n")

    def write_port(self) -> None:
        """The next start listens where this one does."""
        text = self.file.read_text()
        self.file.write_text(text.replace("127.0.0.1:0", f"127.0.0.1:{self.port}"))

    def start(self) -> None:
        self.take(self.another())

    def another(self, *words: str) -> subprocess.Popen[bytes]:
        """A process with the same models.toml."""
        self._listened = self.text().count("listens at")
        command = [sys.executable, "-m", "gpuwm.serve", str(self.file), *words]
        with open(self.log, "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def take(self, process: subprocess.Popen[bytes]) -> None:
        """From now on it is this process, which begins to serve."""
        self._process = process

        def ports() -> list[str]:
            assert process.poll() is None, self.text()
            return re.findall(r"listens at [\d.]+:(\d+)", self.text())[self._listened :]

        self.port = int(eventually(ports)[-1])

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """gpuwm-serve wake or reload."""
        command = [sys.executable, "-m", "gpuwm.serve", words[0]]
        command += ["--folder", str(self.folder / "run"), *words[1:]]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def signal(self, number: int) -> int:
        """Sends it, and waits for the end; the exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """For its end; the exit status."""
        assert self._process is not None
        return self._process.wait(60)

    def hang_up(self) -> None:
        os.kill(self.pid, signal.SIGHUP)

    def kill_engine(self, model: str) -> int:
        """The one that started last; its pid."""
        pid = self.engine(model)
        os.kill(pid, signal.SIGKILL)
        return pid

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.signal(signal.SIGTERM)

    # ---- a client ----

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        body: Any = None,
        path: str = "/v1/chat/completions",
        headers: Mapping[str, str] | None = None,
        method: str | None = None,
        seconds: float = 60,
    ) -> tuple[int, Any]:
        """Status, and the body: JSON if it is that."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json", **(headers or {})},
            method=method,
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return answer.status, _parsed(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _parsed(error.read())

    def said(self, model: str, **more: Any) -> str:
        """The content of an answer, which has to come."""
        status, found = self.ask({"model": model, **more})
        assert status == 200, found
        content: str = found["choices"][0]["message"]["content"]
        return content

    def state(self, model: str) -> str:
        found: str = self.ask(path=f"/v1/models/{model}")[1]["state"]
        return found

    def engine(self, model: str) -> int:
        """The pid of the engine that started last."""
        return int(re.findall(rf"{re.escape(model)}\.\d+ .*?: pid (\d+)", self.text())[-1])


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")


@contextlib.contextmanager
def serving(tables: Mapping[str, Mapping[str, Any]], slots: int = 0) -> Iterator[Serve]:
    """slots: how many engines can be awake. Their command is `command`, unless a model has one."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuwm-serve-"))
    os.environ.pop("GPUWM_SERVE_KEY", None)
    found = Serve(folder, tables, slots)
    try:
        found.start()
        yield found
    except BaseException:
        print(found.text())
        raise
    finally:
        found.end()
        shutil.rmtree(folder)
