"""models.toml: what it may say, and what gpuwm-serve says of it before anything starts."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest
from serving_models import command, toml

import gpuwm
from gpuwm.serve import __main__ as program
from gpuwm.serve import models, supervisor
from gpuwm.serve.models import GIB, Config, Model

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: pathlib.Path) -> Write:
    def to_file(text: str) -> str:
        (tmp_path / "models.toml").write_text(text)
        return str(tmp_path / "models.toml")

    return to_file


def test_one_line_a_model_is_enough(write: Write) -> None:
    found = models.read(write('[models]\nsmall = "Qwen/Qwen3-0.6B"\n"a/b" = "/models/b"\n'))
    assert list(found.models) == ["small", "a/b"]
    assert found.models["small"] == Model("small", source="Qwen/Qwen3-0.6B")
    assert found.listen == ("127.0.0.1", 8000)


def test_defaults_count_for_all_and_a_model_s_own_first(write: Write) -> None:
    found = models.read(
        write(
            """
            [serve]
            listen = "[::1]:0"
            body_bytes = "1 MiB"
            [devices]
            "0" = "76.5 GiB"
            [defaults]
            idle = "10m"
            drain = 3
            engine = "sglang"
            [models]
            a = "x/a"
            b = { source = "x/b", engine = "vllm", idle = "90s", memory = "2 GiB", devices = "1" }
            """
        )
    )
    a, b = found.models.values()
    assert (a.idle, a.drain, a.parks, a.asleep) == (600, 3, False, 0)
    assert (b.idle, b.parks, b.asleep, b.memory, b.devices) == (90, True, GIB, 2 * GIB, ("1",))
    assert (found.listen, found.body_bytes) == (("::1", 0), 1 << 20)
    assert found.budgets == {"0": int(76.5 * GIB)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models", "is no TOML"),
        ("[models]", "has no models"),
        ("[model]\na = 1", r"\[model\]: the tables are serve, devices, defaults, models"),
        ("models = 1", "models is 1: it is a table"),
        ("[models]\na = 1", "models.a is 1: it is a source, or a table"),
        ("[models]\na = {}", "models.a has no source"),
        ('[models]\na = "llama@prod"', 'the weights with version = "llama@prod"'),
        ('[models]\na = { version = "llama" }', 'a version of gpuwmd, such as "llama@prod"'),
        ('[models]\na = { deep_sleep = "1h" }', "models.a.deep_sleep: the keys are source, "),
        ('[models]\n"a b" = "x"', "the name 'a b': letters, digits"),
        ('[models]\na = { engine = "command" }', "models.a has no command"),
        ('[models]\na = { engine = "ollama" }', "one of vllm, sglang, command"),
        ('[models]\na = { idel = "1m" }', "models.a.idel: the keys are source, "),
        ('[models]\na = { idle = "1 fortnight" }', "'1 fortnight': it is seconds, or a time"),
        ('[models]\na = { memory = "60 GB" }', "'60 GB': it is bytes, or a size"),
        ("[models]\na = { memory = -1 }", "-1: it is bytes"),
        ("[models]\na = { engines = 0 }", "a number from 1 to 64"),
        ("[models]\na = { parks = 1 }", "1: it is true or false"),
        ("[models]\na = { arguments = [1] }", "a list of texts"),
        ("[models]\na = { devices = [] }", 'a device such as "0"'),
        ("[models]\na = { environment = [] }", "a table of texts"),
        ('[models]\na = { health = "health" }', "a path such as"),
        ('[models]\na = { source = "x", min_awake = 0, drain = 0 }', "change places without end"),
        ('[serve]\nlisten = "8000"', 'an address such as "127.0.0.1:8000"'),
        ("[serve]\nconnections = 0", "a number from 1 on"),
        ('[serve]\ntoken_file = "/no/such"\n[models]\na = "x"', "/no/such can't be read"),
    ],
)
def test_what_is_wrong_is_named(write: Write, text: str, said: str) -> None:
    with pytest.raises(gpuwm.Invalid, match=said):
        models.read(write(text))


def test_a_file_that_is_none_or_too_large(tmp_path: pathlib.Path, write: Write) -> None:
    with pytest.raises(gpuwm.Invalid, match="can't be read: No such file"):
        models.read(tmp_path / "none.toml")
    with pytest.raises(gpuwm.Invalid, match=f"at most {models.FILE_BYTES_MAX}"):
        models.read(write("#" * (models.FILE_BYTES_MAX + 1)))


def test_memory_that_is_not_given_is_what_the_others_leave() -> None:
    budgets = {"0": 100 * GIB}
    staying = Model("s", memory=10 * GIB, stays_awake=True)
    given = {"a": Model("a"), "b": Model("b", engines=2, asleep=GIB), "s": staying}
    found = models.complete(Config(given, budgets=budgets)).models
    assert found["a"].memory == (100 - 10 - 2 - 1) * GIB
    assert found["b"].memory == (100 - 10 - 1 - 1) * GIB // 2
    with pytest.raises(gpuwm.Invalid, match="models.a: how much engines may take of device 0"):
        models.complete(Config({"a": Model("a")}))


def test_an_engine_with_another_command_line_has_another_socket() -> None:
    folder, a = pathlib.Path("/run/x"), Model("x/a", source="x")
    place = models.place(folder, a, 0)
    assert place.log == folder / "x%2Fa.0.log"
    assert place.socket.name.startswith("x%2Fa.0.")
    assert models.place(folder, Model("x/a", source="x", idle=3), 0) == place
    assert models.place(folder, Model("x/a", source="y"), 0).socket != place.socket
    assert models.place(folder, a, 1).socket != place.socket


def test_commands_of_engines() -> None:
    place = models.Place(*(pathlib.Path(name) for name in ("/s", "/log", "/c.yaml")))
    vllm = Model("a", source="x/a", arguments=("--max-model-len", "64"))
    assert supervisor.command(vllm, place, "") == [
        *("vllm", "serve", "x/a", "--served-model-name", "a", "--uds", "/s"),
        *("--load-format", "gpuwm", "--worker-cls", "gpuwm.vllm.Worker", "--enable-sleep-mode"),
        *("--middleware", "gpuwm.vllm.Control", "--max-model-len", "64"),
    ]
    own = Model("a", source="x", engine="command", command=("e", "-{name}-", "{source}", "{port}"))
    assert supervisor.command(own, place, "8") == ["e", "-a-", "x", "8"]
    sglang = Model("a", source="x/a", engine="sglang")
    assert supervisor.command(sglang, place, "8")[3:] == [
        *("--model-path", "x/a", "--served-model-name", "a", "--host", "127.0.0.1"),
        *("--port", "8", "--config", "/c.yaml", "--load-format", "gpuwm"),
    ]
    settings = '{"ref": "llama@prod", "mode": "load"}'
    for engine in ("vllm", "sglang"):
        attaches = Model("a", source="x/a", version="llama@prod", engine=engine)
        words = supervisor.command(attaches, place, "8")
        assert words[-2:] == ["--model-loader-extra-config", settings]
    environment = Model("a", devices=("1", "GPU-7"), environment={"X": "1"})
    assert supervisor.environment_of(environment, "") == {
        "X": "1",
        "CUDA_VISIBLE_DEVICES": "1,GPU-7",
    }


# ---- gpuwm-serve --check -------------------------------------------------------------------------


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = program.main([*words, "--check"])
    return status, *capsys.readouterr()


def test_check_says_how_long_requests_wait(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"engine": "command", "command": command(), "parks": True, "memory": "60 GiB"}
    path = write(
        '[devices]\n0 = "100 GiB"\n[defaults]\n'
        "min_awake = 5\ndrain = 30\nsleep = 2\nwake = 4\n"
        f"[models]\na = {toml(own)}\nb = {toml({**own, 'memory': '9 GiB'})}\n"
        f"c = {toml({**own, 'engines': 1, 'memory': '45 GiB'})}\n"
    )
    status, said, wrong = checked(capsys, path)
    assert (status, wrong) == (0, "")
    assert said.splitlines() == [
        "MODEL  ENGINE   DEVICES  MEMORY    WAITS ALONE  WAITS AT MOST",
        "a      command  0        60.0 GiB  43 s         155 s",
        "b      command  0        9.0 GiB   43 s         155 s",
        "c      command  0        45.0 GiB  43 s         155 s",
    ]


def test_check_says_what_would_not_work(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(
        """
        [serve]
        listen = "0.0.0.0:8000"
        connections = 100000000
        [devices]
        0 = "10 GiB"
        [models]
        a = { engine = "command", command = ["no-such-program", "{socket}"], memory = "11 GiB" }
        b = { engine = "command", command = ["sh"], source = "/no/such", parks = true }
        """
        f'{"c" * 100} = {{ engine = "command", command = ["sh", "{{socket}}"] }}'
    )
    status, _, wrong = checked(capsys, path)
    assert status == 1
    for each in (
        "serve.listen: everybody who reaches 0.0.0.0 could use the models: set serve.token_file",
        "serve.connections: 100000000 clients take 200000256 files, and a process has ",
        "models.a: there is no program no-such-program",
        "models.a: it takes 11.00 GiB of device 0, which has 10.00 GiB",
        "models.b: there is no folder /no/such",
        "models.b: its command has neither {socket} nor {port}",
        "models.b: only an engine that listens at {socket} can park: set parks = false",
        "bytes, and the kernel takes 107: set serve.folder to a shorter path",
    ):
        assert each in wrong


def test_names_on_the_command_line_are_models() -> None:
    assert list(models.of_names(["x/a", "x/b"]).models) == ["x/a", "x/b"]


def test_the_package_imports_nothing_of_it() -> None:
    """Nor of what it needs."""
    code = (
        "import gpuwm, sys; print(sorted(n for n in sys.modules if 'aiohttp' in n or 'serve' in n))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert found.stdout in ("[]\n", "['http.server']\n")
