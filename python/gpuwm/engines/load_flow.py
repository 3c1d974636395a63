"""The flow of a load, which is the same in all engines.

An engine decides with all of its ranks whether it attaches to the version or builds it (`decide`).
If it builds, its own loader reads the model, and the model is published. If it attaches, a fresh
model is built around the version. If gpuwm can't be used, the engine may go on with memory of its
own (`or_alone`). The flow calls `Steps` for what only the engine's own code can do.
"""

from __future__ import annotations

import abc
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch

from .. import errors, image
from .._mapping import Mapping as Attached
from .._torch.bind import no_collections
from . import caches, differences, election, names, publication, raw, wholes
from .caches import Caches
from .clock import Clock
from .engine import Engine
from .names import Load
from .postprocess import Replay
from .ranks import RankEnded
from .settings import Settings

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

GIGA = 1e9


class Steps(abc.ABC):
    """The steps of one load that only the engine's own code can take. Each kind of engine has a
    subclass.

    - log: where the engine logs.
    - made_by: the name of the metadata that says who made a version.
    - written_by_loading: attributes that the engine writes when it has loaded weights.
    """

    log: ClassVar[logging.Logger]
    made_by: ClassVar[str]
    written_by_loading: ClassVar[Collection[str]]

    def __init__(self, load: Load, settings: Settings) -> None:
        self.load = load
        self.settings = settings

    def compiles(self) -> bool:
        """Whether the engine calls `caches.write` when it has compiled."""
        return False

    def caches(self) -> Caches:
        """What the engine's compilers keep. Only asked if it compiles. Raises the errors of
        `caches.key`."""
        raise NotImplementedError

    @abc.abstractmethod
    def check(self) -> None:
        """Raises Unsupported, which names the first option that load format gpuwm refuses."""

    @abc.abstractmethod
    def read(self) -> Module:
        """Returns the model, loaded by the engine's own loader into memory of this engine alone."""

    @abc.abstractmethod
    def read_raw(self, weights: Iterable[tuple[str, Tensor]], checkpoint: str) -> Module:
        """Returns the model, loaded by the engine's own loader from a checkpoint that gpuwm holds,
        and not from files. weights: its names and tensors, which are there until this returns.
        checkpoint: its version, for errors."""

    @abc.abstractmethod
    def initialize(self) -> Module:
        """Returns a fresh model, whose parameters have no memory."""

    @abc.abstractmethod
    def replay(self, model: Module) -> Replay:
        """The post-processing of a fresh model."""

    @abc.abstractmethod
    def finish(self, model: Module) -> None:
        """Notes about a model that was built around a version what the engine's own loader notes
        about the models that it loads."""

    @abc.abstractmethod
    def backends(self, model: Module) -> Mapping[str, str]:
        """The key's fields that say which kernels the layers of a built model chose."""

    @abc.abstractmethod
    def publish(self, engine: Engine, model: Module) -> Attached:
        """`publication.publish` with what the engine's modules have besides weights."""

    @abc.abstractmethod
    def keep(self, model: Module, engine: Engine, mapping: Attached) -> None:
        """Keeps the mapping, which has the lease, for as long as the model lives."""


class Decision(NamedTuple):
    """mapping: of the version to which the engine attaches, or None if it builds."""

    engine: Engine
    mapping: Attached | None


def decide(steps: Steps) -> Decision:
    """Decides with all ranks. If the engine is to build, it has the claim. Collective. Raises the
    errors of `Steps.check`, `names.connect` and `election.find`."""
    clock = Clock()
    steps.check()
    engine = names.connect(steps.load, steps.settings)
    engine.keeps_caches = steps.settings.caches != "off" and steps.compiles()
    engine.caches = caches.of(engine, steps.caches)
    clock.lap("key")
    mapping = election.find(engine)
    clock.lap("attach")
    engine.seconds = clock.times
    return Decision(engine, mapping)


def carry_out(steps: Steps, decision: Decision) -> Module:
    """Returns the model, in evaluation mode, in memory of gpuwm's. Collective. If the engine builds
    and can't publish, but may fall back, the model is in memory of this engine alone."""
    engine, mapping = decision
    return _build(steps, engine) if mapping is None else _attach(steps, engine, mapping)


def or_alone(steps: Steps, share: Callable[[], Module]) -> Module:
    """Returns what `share()` returns. If that raises an error of gpuwm, and the engine may fall
    back, returns a model in memory of this engine alone."""
    try:
        return share()
    except errors.Error as error:
        if not falls_back(steps.settings, error):
            raise
        _warn_of_fallback(steps, error)
    return steps.read()


def falls_back(settings: Settings, error: errors.Error) -> bool:
    """Whether an engine that met this error goes on with memory of its own."""
    return settings.fallback is not None and not isinstance(error, RankEnded)


def _warn_of_fallback(steps: Steps, error: errors.Error) -> None:
    steps.log.warning(
        'gpuwm: %s is loaded into memory of this engine alone ("fallback": "auto"), since gpuwm '
        "can't be used: %s",
        steps.load.model,
        error,
    )


# ---- build ---------------------------------------------------------------------------------------


def _build(steps: Steps, engine: Engine) -> Module:
    begin = time.perf_counter()
    model: Module | None = None
    error: BaseException | None = None
    try:
        model, source = _read(steps, engine)
        names.check_unchanged(steps.load, engine)
    except BaseException as failed:
        error = failed
    try:
        engine.ranks.agree(f"load {steps.load.model}", error)
    except BaseException:
        election.give_up(engine)
        raise
    assert model is not None
    loaded = time.perf_counter()
    try:
        mapping = steps.publish(engine, model)
    except errors.Error as failed:
        if not falls_back(steps.settings, failed):
            raise
        # The model is complete, in memory of this engine alone.
        _warn_of_fallback(steps, failed)
        return model
    steps.keep(model, engine, mapping)
    caches.lay_out(engine, mapping.version)
    _empty_cache()
    steps.log.info(
        "gpuwm: built %s (%s), since %s: %.2f GB in %d tensors; %s %.2f s, publish %.2f s. "
        "Other engines attach to it",
        mapping.version,
        mapping.version.id,
        'it has "mode": "save"' if steps.settings.mode == "save" else "it was not there",
        mapping.nbytes / GIGA,
        len(mapping),
        source,
        loaded - begin,
        time.perf_counter() - loaded,
    )
    return model


def _read(steps: Steps, engine: Engine) -> tuple[Module, str]:
    """Returns the model, loaded by the engine's own loader, and how it was loaded."""
    if steps.settings.mode != "raw":
        return steps.read(), f"loader {steps.settings.inner}"
    with raw.attach_to(engine) as checkpoint:
        weights = wholes.weights(checkpoint, raw.elsewhere(engine, checkpoint))
        model = steps.read_raw(weights, str(checkpoint.version))
        return model, f"from {checkpoint.version} on {checkpoint.device}"


# ---- attach --------------------------------------------------------------------------------------


def _attach(steps: Steps, engine: Engine, mapping: Attached) -> Module:
    begin = time.perf_counter() - sum(engine.seconds.values())
    error: BaseException | None = None
    try:
        model, times = _around(steps, engine, mapping)
    except BaseException as failed:
        error = failed
    engine.ranks.agree(f"build a model around {engine.name}", error)
    steps.keep(model, engine, mapping)
    version = mapping.version
    caches.lay_out(engine, version)
    steps.log.info(
        "gpuwm: attached %s (%s), %.2f GB, made by %s, in %.3f s: %s",
        version,
        version.id,
        version.nbytes / GIGA,
        publication.maker(mapping, steps.made_by),
        time.perf_counter() - begin,
        ", ".join(f"{what} {s:.3f} s" for what, s in {**engine.seconds, **times}.items()),
    )
    return model


def _around(steps: Steps, engine: Engine, mapping: Attached) -> tuple[Module, dict[str, float]]:
    """Returns a fresh model whose parameters are the version's, and how many seconds each step
    took."""
    clock = Clock()
    with no_collections(), _default_dtype(steps.load.model_config.dtype):
        model = steps.initialize()
        clock.lap("build")
        # The layers have chosen their kernels now, so that part of the key can be compared.
        engine.check(mapping, steps.backends(model))
        replay = steps.replay(model)
        installed = image.install(
            model, mapping, private=steps.settings.private, replay=replay.steps()
        )
        differences.warn_of_values(
            steps.log,
            str(mapping.version),
            model,
            installed.values,
            steps.written_by_loading,
        )
        steps.finish(model)
        clock.lap("install and post-process")
        clock.times["of it post-processing"] = replay.seconds
    _empty_cache()
    return model.eval(), clock.times


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Inside, this is torch's default dtype. The engines have such functions too, but these do not
    put the old dtype back after an error."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _empty_cache() -> None:
    """Gives back the memory that torch keeps after a load: other engines, and their versions, share
    the GPU."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
