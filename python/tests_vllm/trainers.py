"""Trainers as a test sees them: processes that publish."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

from tests_engines.engines import Engine, Failed, Job


class Trainer(Engine):
    """A process that publishes: `training.Trainer`."""

    @staticmethod
    def _target() -> Any:
        return _train

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """What the method gives. Failed: what it raised."""
        self.loaded()
        self.begin(method, *arguments, **named)
        what, *content = self.answer()
        if what == "failed":
            raise Failed(content[0], content[1], "")
        return content[0]

    def begin(self, method: str, *arguments: Any, **named: Any) -> None:
        """Calls it without waiting."""
        self.loaded()
        self._pipe.send((method, arguments, named))


def _train(pipe: Connection, log: str, job: Job) -> None:
    from . import training  # which imports vLLM: only in the fork server

    training.serve(pipe, log, job)
