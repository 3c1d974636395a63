"""The working files of examples/serve: HAProxy in front of gpuwm-serve; llama-swap's commands."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import eventually
from serving_models import Serve, serving

FILES = pathlib.Path(__file__).parents[2] / "examples/serve"
HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
TOKEN = "of-the-machines"
REQUESTS_MAX = 10  # of a user in ten seconds: haproxy.cfg
pytestmark = pytest.mark.skipif(not FILES.exists(), reason="examples/ is not here")


class Front:
    """HAProxy, with two gpuwm-serves behind it."""

    def __init__(
        self, port: int, trust: pathlib.Path, admin: pathlib.Path, machines: list[Serve]
    ) -> None:
        self.port, self.machines = port, machines
        self._admin = admin
        self._tls = ssl.create_default_context(cafile=str(trust))

    def ask(
        self, key: str, body: Any = None, path: str = "/v1/chat/completions", method: str = ""
    ) -> Any:
        """Status, and the answer's JSON."""
        client = http.client.HTTPSConnection("localhost", self.port, context=self._tls, timeout=60)
        with contextlib.closing(client):
            text = None if body is None else json.dumps(body)
            method = method or ("GET" if body is None else "POST")
            client.request(method, path, text, {"Authorization": f"Bearer {key}"})
            answer = client.getresponse()
            return answer.status, json.loads(answer.read() or b"null")

    def ready(self, backend: str) -> list[bool]:
        """Which of the machines HAProxy takes for ready."""
        with socket.socket(socket.AF_UNIX) as admin:
            if admin.connect_ex(str(self._admin)):
                return []
            admin.sendall(f"show servers state {backend}\n".encode())
            rows = admin.makefile().read().splitlines()[2:4]
        return [row.split()[5] == "2" for row in rows]


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    if HAPROXY is None or shutil.which("openssl") is None:
        pytest.skip("needs haproxy and openssl (scripts/deps operators)")
    folder = tmp_path_factory.mktemp("behind")
    (folder / "token").write_text(TOKEN)
    (folder / "users.map").write_text("sk-ann-1 ann\nsk-bob-1 bob\nsk-eve-1 eve\n")
    (folder / "models.map").write_text(
        "ann/small yes\nann/large yes\nbob/small yes\neve/small yes\n"
    )
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
    command += "-subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout key -out chain"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    both = (folder / "chain").read_text() + (folder / "key").read_text()
    (folder / "pem").write_text(both)
    tables: dict[str, Any] = {
        "models": {"small": {}, "large": {}},
        "serve": {"token_file": str(folder / "token")},
    }
    with contextlib.ExitStack() as stack:
        machines = [stack.enter_context(serving(tables, slots=1)) for _ in range(2)]
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        one, two = (f"127.0.0.1:{machine.port}" for machine in machines)
        given = {"LISTEN": f"127.0.0.1:{port}", "CERTIFICATE": str(folder / "pem")}
        given.update(MAPS=str(folder), TOKEN=TOKEN, ONE=one, TWO=two)
        (folder / "more.cfg").write_text(f"global\n    stats socket {folder}/admin\n")
        command = f"{HAPROXY} -q -db -f {FILES}/haproxy.cfg -f {folder}/more.cfg"
        process = subprocess.Popen(command.split(), env={**os.environ, **given})
        stack.callback(process.wait)
        stack.callback(process.kill)
        found = Front(port, folder / "chain", folder / "admin", machines)
        eventually(lambda: found.ready("all") == [True, True])
        yield found


def ask_machine(machine: Serve, body: Any = None, path: str = "/v1/chat/completions") -> Any:
    """Past HAProxy."""
    status, found = machine.ask(body, path, headers={"Authorization": f"Bearer {TOKEN}"})
    assert status == 200
    return found


def state(machine: Serve, model: str) -> str:
    found: str = ask_machine(machine, path=f"/v1/models/{model}")["state"]
    return found


def test_keys_open_the_models_of_their_users(front: Front) -> None:
    status, found = front.ask("sk-ann-1", {"model": "large", "messages": []})
    assert (status, found["model"]) == (200, "large")
    assert front.ask("wrong", {"model": "large"})[0] == 401
    status, found = front.ask("sk-bob-1", {"model": "large"})
    assert (status, found["error"]["code"]) == (403, "model_not_allowed")
    assert front.ask("sk-bob-1", {"messages": []})[0] == 403
    assert front.ask("sk-bob-1", {"model": "large"}, method="GET")[0] == 403
    long = {"model": "small", "messages": "x" * (1 << 20)}
    assert front.ask("sk-bob-1", long)[1]["model"] == "small"
    assert [each["id"] for each in front.ask("sk-bob-1", path="/v1/models")[1]["data"]] == [
        "small", "large",
    ]  # fmt: skip


def test_a_user_has_a_limit(front: Front) -> None:
    told = [front.ask("sk-eve-1", path="/v1/models")[0] for _ in range(REQUESTS_MAX + 1)]
    assert told == [200] * REQUESTS_MAX + [429]


def test_a_model_is_asked_where_it_is_awake(front: Front) -> None:
    """And wakes elsewhere if the machine is gone."""
    one, two = front.machines
    ask_machine(one, {"model": "large"})
    ask_machine(two, {"model": "small"})
    eventually(lambda: front.ready("small") == [False, True])
    for _ in range(3):
        assert front.ask("sk-ann-1", {"model": "small"})[0] == 200
    assert state(one, "small") != "awake"
    two.end()
    eventually(lambda: front.ready("all") == [True, False])
    assert front.ask("sk-bob-1", {"model": "small"})[0] == 200
    assert state(one, "small") == "awake"


def is_awake(serve: Serve, name: str) -> bool:
    return serve.state(name) == "awake"


# ---- llama-swap ----------------------------------------------------------------------------------


def test_what_llama_swap_runs_wakes_a_model(tmp_path: pathlib.Path) -> None:
    """Its file has a command for each model, whose macro it puts in and which it splits as a shell
    does; it then polls the address, and kills the command when it unloads the model."""
    text = (FILES / "llama-swap.yaml").read_text()
    (wake,) = re.findall(r"^  wake: (.*)", text, re.MULTILINE)
    commands = dict(re.findall(r"^  (\w+):\n    cmd: (.*)", text, re.MULTILINE))
    assert list(commands) == ["small", "coder"]
    script = tmp_path / "gpuwm-serve"
    with serving({"models": {"small": {}, "coder": {}}}) as serve:
        folder = serve.folder / "run"
        script.write_text(
            f'#!/bin/sh\nexec {sys.executable} -m gpuwm.serve "$@" --folder {folder}\n'
        )
        script.chmod(0o755)
        path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        for name, command in commands.items():
            words = shlex.split(command.replace("${wake}", wake))
            with subprocess.Popen(words, env=path) as process:
                eventually(functools.partial(is_awake, serve, name))
                assert serve.ask(path="/health")[0] == 200
                assert process.poll() is None
                process.terminate()
        words[-1] = "unknown"
        failed = subprocess.run(words, env=path, capture_output=True, text=True, check=False)
        assert failed.returncode == 1
        assert "there is no model 'unknown': there are small, coder" in failed.stderr
