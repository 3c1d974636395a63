"""The programs of examples/, as they are."""

from __future__ import annotations

import functools
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from conftest import DEVICE, Daemon, by_torch, eventually

pytestmark = by_torch

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
IDS = [5, 9, 2]
START_S = 120  # torch and transformers, on a busy machine


def run(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


def needs_arguments(path: pathlib.Path) -> bool:
    """Whether its first lines name an argument that is not in brackets."""
    usages = re.findall(rf"\b{path.name}((?: [^ \n]+)*)", path.read_text().split('"""')[1])
    return any(word[0] != "[" for usage in usages for word in usage.split())


NEED_ARGUMENTS = [path for path in sorted(EXAMPLES.rglob("*.py")) if needs_arguments(path)]


def told_without_arguments(*command: str | pathlib.Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


@pytest.mark.parametrize("path", NEED_ARGUMENTS, ids=lambda path: path.stem)
def test_an_example_without_its_arguments_says_which_they_are(path: pathlib.Path) -> None:
    assert told_without_arguments(sys.executable, path).startswith(f"usage: {path.name} ")


def test_the_examples_that_need_arguments_are_found() -> None:
    assert {"plain.py", "onnx_session.py", "serving.py", "transformers_model.py"} <= {
        path.name for path in NEED_ARGUMENTS
    }


@pytest.mark.parametrize("name", ["worker", "dlpack"])
def test_an_example_in_c_without_its_arguments_does_so_too(name: str) -> None:
    program = pathlib.Path(os.environ["GPUWM_BUILD"], "bin", f"example-{name}")
    if not program.exists():
        pytest.skip("this build has no examples")
    assert told_without_arguments(program).startswith(f"usage: {program} REF")


def test_plain(daemon: Daemon, checkpoint: Callable[..., str]) -> None:
    ones = np.ones((4, 2), np.float32)
    tensors = {"0.weight": ones, "0.bias": ones[:, 0], "2.weight": ones.T, "2.bias": ones[0]}
    ref = checkpoint({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})
    assert run("plain.py", ref) == f"{ref} on {daemon.device}: 4 tensors shared, 26.0000\n"


def test_image(daemon: Daemon) -> None:
    answer = "4 tensors shared, 524288.0\n"
    assert run("image.py", "image@v1") == f"image@v1 published: {answer}"
    installed = "image@v1 installed, 2 tensors registered"
    assert run("image.py", "image@v1") == f"{installed}: {answer}"


@pytest.mark.usefixtures("daemon")
def test_tokenizer() -> None:
    told = run("tokenizer.py", "20").splitlines()  # more than its pool has room for at once
    assert len(told) == 20
    assert told[1] == "request 1 has no image"
    wanted = f"request 18 has (256, 1024) of [1, 16, 16] with the sum {18.0 * 256 * 1024}"
    assert told[18] == wanted


@pytest.mark.usefixtures("daemon")
def test_image_cache() -> None:
    told = run("image_cache.py", "3")
    assert told == "6 images, 3 processes: encoded 6 times\neach has summed 15.0\n"


def llama(daemon: Daemon, tag: str, seed: int, layers: int = 2) -> list[int]:
    """Loads a random one; what it generates."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        initializer_range=1.0,
    )
    model: Any = transformers.LlamaForCausalLM(config)
    model.to(DEVICE).eval()
    model.save_pretrained(daemon.models / tag)
    daemon.load_folder(f"llama@{tag}", daemon.models / tag)
    made = model.generate(torch.tensor([IDS], device=DEVICE), max_new_tokens=8, do_sample=False)
    tokens: list[int] = made[0, len(IDS) :].tolist()
    return tokens


@pytest.fixture(scope="module")
def answers(daemon: Daemon) -> dict[str, list[int]]:
    """Of each version; v3 has another layout. "prod" names v1."""
    found = {
        "llama@v1": llama(daemon, "v1", 1),
        "llama@v2": llama(daemon, "v2", 2),
        "llama@v3": llama(daemon, "v3", 3, layers=3),
    }
    assert len({tuple(tokens) for tokens in found.values()}) == 3
    daemon.admin.swap("llama", "v1", alias="prod")
    return found


def test_generate(answers: dict[str, list[int]]) -> None:
    words = run("generate.py", "llama@v1", *map(str, IDS)).split()
    assert [int(word) for word in words] == answers["llama@v1"]


def ask(port: int) -> tuple[str, list[int]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)
    connection.request("POST", "/", json.dumps({"ids": IDS}))
    told = json.loads(connection.getresponse().read())
    connection.close()
    return told["version"], told["ids"]


def test_the_http_worker_swaps_while_it_serves(
    daemon: Daemon, answers: dict[str, list[int]]
) -> None:
    arguments = [sys.executable, str(EXAMPLES / "http_worker.py"), "llama@prod", "0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            told = asked_while_swapping(daemon, int(worker.stdout.readline().split()[-1]))
        finally:
            worker.kill()
    assert {version for version, _ in told} == set(answers)
    assert all(tokens == answers[version] for version, tokens in told)
    eventually(lambda: daemon.leases("llama@v1") == 0)


def test_the_http_worker_goes_on_without_its_alias(
    daemon: Daemon, answers: dict[str, list[int]]
) -> None:
    daemon.admin.swap("llama", "v1", alias="away")
    arguments = [sys.executable, str(EXAMPLES / "http_worker.py"), "llama@away", "0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as worker:
        late = threading.Timer(2 * START_S, worker.kill)  # nothing is read any more then
        late.start()
        try:
            assert worker.stdout is not None
            port = int(worker.stdout.readline().split()[-1])
            daemon.admin.swap("llama", None, alias="away")
            assert worker.stdout.readline().startswith("serves llama@v1 still: ")
            assert ask(port) == ("llama@v1", answers["llama@v1"])
            daemon.admin.swap("llama", "v2", alias="away")
            assert worker.stdout.readline() == "serves llama@v2\n"
            assert ask(port) == ("llama@v2", answers["llama@v2"])
        finally:
            late.cancel()
            worker.kill()


def asked_while_swapping(daemon: Daemon, port: int) -> list[tuple[str, list[int]]]:
    """What two clients were told that ask on and on: from each version that the alias named."""
    ended = threading.Event()
    told: list[tuple[str, list[int]]] = []

    def keep_asking() -> None:
        while not ended.is_set():
            told.append(ask(port))

    clients = [threading.Thread(target=keep_asking) for _ in range(2)]
    for client in clients:
        client.start()
    try:
        for tag in ("v2", "v1", "v2", "v3", "v1"):
            daemon.admin.swap("llama", tag, alias="prod")
            eventually(functools.partial(was_told, told, f"llama@{tag}"), 30)
    finally:
        ended.set()
        for client in clients:
            client.join(START_S)
    return told


def was_told(told: list[tuple[str, list[int]]], version: str) -> bool:
    return bool(told) and told[-1][0] == version
