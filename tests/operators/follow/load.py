"""Requests without a pause, and the judgement of their answers."""

from __future__ import annotations

import bisect
import dataclasses
import http.client
import json
import os
import threading
import time

THREADS = 4
TIMEOUT_S = 30
# Between two requests of a thread: some hundred requests a second leave the processors to others.
PAUSE_S = float(os.environ.get("GPUWM_FOLLOW_PAUSE", "0.005"))


@dataclasses.dataclass(frozen=True)
class Answer:
    began: float
    ended: float
    status: int
    version: str  # or why there is none


class Load:
    """Keeps asking while it is open. swapped() notes what is current from now on."""

    def __init__(self, port: int, version: str) -> None:
        self.port = port
        self.answers: list[Answer] = []
        self.since = [0.0]  # when each of `current` became current, in order
        self.current = [version]
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self._ask_on) for _ in range(THREADS)]

    def __enter__(self) -> Load:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def swapped(self, version: str) -> None:
        self.since.append(time.monotonic())
        self.current.append(version)

    def _ask_on(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        while not self.ended.is_set():
            began = time.monotonic()
            try:
                connection.request("GET", "/")
                reply = connection.getresponse()
                status, body = reply.status, reply.read()
                version = (
                    json.loads(body)["version"] if status == 200 else body.decode(errors="replace")
                )
            except (OSError, http.client.HTTPException, ValueError) as error:
                status, version = 0, repr(error)
                connection.close()
            self.answers.append(Answer(began, time.monotonic(), status, version))
            time.sleep(PAUSE_S)

    # ---- judging ----

    def answered(self, version: str, since: float) -> bool:
        """Whether an answer to a request since then was of this version."""
        return any(a.version == version and a.began >= since for a in self.answers[-200:])

    def _allowed(self, answer: Answer) -> set[str]:
        """What was current while the request ran, and the version before."""
        first = bisect.bisect(self.since, answer.began) - 1
        last = bisect.bisect(self.since, answer.ended)
        return set(self.current[max(first - 1, 0) : last])

    def judge(self) -> tuple[list[Answer], list[Answer]]:
        """Those that failed, and those of a version that was not to answer."""
        failed = [a for a in self.answers if a.status != 200]
        wrong = [a for a in self.answers if a.status == 200 and a.version not in self._allowed(a)]
        return failed, wrong
