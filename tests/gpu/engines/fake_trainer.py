"""Stands in for trainer.py where there is no GPU and no vLLM: it publishes a few KiB on the host.

$FAKE_FAULT makes it go wrong: "copies" (it copies all that it publishes), "keeps" (it retires no
version), "halves" (it publishes the other checkpoint), "lives" (a publish that is to be cut off is
none)."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
from typing import Any

import gpuwm

import fake
from engine import Options, take_options, tell

FAULT = os.environ.get("FAKE_FAULT", "")
KEEP_LAST = 2


class Trainer:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._client = gpuwm.connect()
        self._model = options.llm["model_loader_extra_config"]["ref"].partition("@")[0]
        self._made: list[str] = []

    def tensors(self, number: int) -> Any:
        if FAULT == "halves":
            number = 1 - number
        return fake.made({**self._options.llm, "model": self._options.training[number]})

    def publish(self, tag: str, number: int) -> None:
        name = f"{self._model}@{tag}"
        tensors = {"weight": self.tensors(number)}
        made = gpuwm.publish(
            tensors, name, alias="prod", device="host", bind=False, client=self._client
        )
        self._made.append(made.id)
        for old in self._made[:-KEEP_LAST] if FAULT != "keeps" else ():
            self._client.retire(old)
            self._made.remove(old)
        copied = made.nbytes if FAULT == "copies" else 0
        seconds = dict.fromkeys(("begin", "load", "commit", "in all"), 0.01)
        tell(
            "published",
            version=name,
            bytes=made.nbytes,
            copied=copied,
            ignored=[],
            seconds=seconds,
            memory={},
        )

    def die(self, tag: str, number: int) -> None:
        if FAULT == "lives":
            self.publish(tag, number)

        def announce(publish_id: str) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        tensors = {"weight": self.tensors(number)}
        name = f"{self._model}@{tag}-cut"
        gpuwm.publish(tensors, name, device="host", bind=False, announce=announce)

    def send(self, path: str, number: int) -> None:
        pathlib.Path(path).write_bytes(bytes(self.tensors(number)))
        tell("sent", tensors=1, seconds={"handles": 0.01})
        assert sys.stdin.readline().strip() == "received"


def main() -> None:
    trainer = Trainer(take_options())
    tell("started", seconds={"publisher()": 0.1}, memory={})
    for line in iter(sys.stdin.readline, ""):
        what, where, number = line.split()
        getattr(trainer, what)(where, int(number))
    tell("ending")


if __name__ == "__main__":
    main()
