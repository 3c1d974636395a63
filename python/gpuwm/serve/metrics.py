"""What gpuwm-serve counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

import prometheus_client
from prometheus_client.core import GaugeMetricFamily, Metric

from .decision import State
from .turns import Turns

SECONDS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST


class Metrics:
    """An observer of `turns.Turns`, which counts."""

    def __init__(self) -> None:
        self.registry: prometheus_client.CollectorRegistry = prometheus_client.CollectorRegistry()
        self._requests = self._counter("requests", "Requests that were answered", "status")
        self._waits = self._histogram("wait", "How long requests waited until a model was awake")
        self._wakes = self._histogram("wake", "How long a wake took")
        self._sleeps = self._histogram("sleep", "How long it took to fall asleep")
        self._failures = self._counter("failures", "Starts, wakes and engines that failed")
        self._room = self._counter("made_room", "How often it had to sleep for another", "waiting")

    def _counter(self, what: str, text: str, *labels: str) -> prometheus_client.Counter:
        return prometheus_client.Counter(
            f"gpuwm_serve_{what}", text, ("model", *labels), registry=self.registry
        )

    def _histogram(self, what: str, text: str) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(
            f"gpuwm_serve_{what}_seconds", text, ("model",), buckets=SECONDS, registry=self.registry
        )

    def answered(self, name: str, status: int) -> None:
        self._requests.labels(name, str(status)).inc()

    def waited(self, name: str, seconds: float) -> None:
        self._waits.labels(name).observe(seconds)

    def moved(self, name: str, what: str, seconds: float) -> None:
        (self._wakes if what == "wake" else self._sleeps).labels(name).observe(seconds)

    def failed(self, name: str) -> None:
        self._failures.labels(name).inc()

    def made_room(self, name: str, waiting: str) -> None:
        self._room.labels(name, waiting).inc()

    def watch(self, turns: Turns) -> None:
        """Tells, with all else, how the models stand."""
        self.registry.register(_Standings(turns))

    def text(self) -> bytes:
        return prometheus_client.generate_latest(self.registry)


class _Standings:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def collect(self) -> Iterator[Metric]:
        turns = self._turns
        state = _gauge("state", "1 for the state of each model", "state")
        queued = _gauge("queued", "Requests that wait until their model is awake")
        running = _gauge("in_flight", "Requests that engines have")
        for name in turns.config.models:
            for each in State:
                state.add_metric((name, each.value), float(turns.standing(name).state is each))
            queued.add_metric((name,), turns.queued(name))
            running.add_metric((name,), turns.in_flight(name))
        yield from (state, queued, running)


def _gauge(what: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"gpuwm_serve_{what}", text, labels=("model", *labels))
