"""vLLM's sleep mode for an engine whose weights lie in gpuwm's memory: the weights are parked.

    vllm serve MODEL --load-format gpuwm --worker-cls gpuwm.vllm.Worker --enable-sleep-mode

`Backend` is a backend of vLLM's own factory. It leaves all that lies in vLLM's memory pools (the KV
cache, what a release of vLLM calls runtime state, adapters) to vLLM's own backend, and parks the
mappings of the models that load format gpuwm has loaded in this process. A parked mapping keeps its
addresses and its lease. Its memory may leave the GPU as soon as somebody else needs the room, so
levels 1 and 2 are the same. If no model lies in gpuwm's memory ("fallback" is in
effect), everything sleeps as vLLM's own backend lets it sleep.

- gpuwmd counts the pools as room of the lease while the engine is awake, if its budget of the GPU
  has so much. Then a wake gets the weights and the memory for the pools together, or neither.
- A sleep that fails is undone: the engine is awake as before, and what its KV cache held is gone.
- A wake that fails is undone too: the engine sleeps, and the wake may be repeated.
- The ranks of an engine get their weights and their room at once, or none of them does. So two
  engines with several ranks never wait for each other. If a rank fails, all ranks go back.
- What sleeps already, or is awake already, is left as it is.

vLLM makes the backend at the first sleep, and gives it neither the model nor the worker. So it
looks for the models that this process has loaded.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from .. import errors
from .._mapping import Mapping as Attached
from ..engines.clock import Clock
from ..engines.ranks import Ranks
from . import memory, model_loader, moves, releases

if TYPE_CHECKING:
    from ._bases import CuMemBackend
else:
    from vllm.device_allocator.sleep_mode_backend import CuMemBackend

log: logging.Logger = logging.getLogger("vllm.gpuwm")

NAME = "gpuwm"  # of the backend in vLLM's factory
VLLMS = "cumem"  # the name of vLLM's own
WEIGHTS = "weights"  # vLLM's tag
RUNNING, SUSPENDED, RESUMING = "RUNNING", "SUSPENDED", "RESUMING"  # vLLM's states
# How long a wake waits for weights that have left the GPU, and for engines that are in the way: a
# checkpoint of 140 GiB comes from a disk of 0.5 GB/s within this time.
WAKE_S = 300.0
# How long an engine whose sleep failed waits for its weights. They are there, unless another engine
# took their room within the moment of the sleep.
BACK_S = 60.0
TORN = "and it could not go back"  # in the text of an error after which an engine can't serve
# What the source of vLLM's functions must have, so that half a sleep or half a wake can be undone.
USES = (
    (
        "vllm.device_allocator.cumem.CuMemAllocator.sleep",
        ("self.pointer_to_data", "data.cpu_backup_tensor", "unmap_and_release(handle)"),
    ),
    (
        "vllm.device_allocator.cumem.CuMemAllocator.wake_up",
        ("create_and_map(handle)", "data.is_asleep = False", "libcudart.cudaMemcpy("),
    ),
    ("vllm.device_allocator.sleep_mode_backend.CuMemBackend.suspend", ("allocator.sleep(",)),
    ("vllm.device_allocator.sleep_mode_backend.CuMemBackend.resume", ("allocator.wake_up(tags)",)),
)


def check() -> None:
    """Raises Unsupported if an engine that starts now could not sleep: this vLLM lacks what
    `Backend` uses, or does not know the backend."""
    problems = releases.text_problems(USES)
    if not problems:
        from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

        try:
            found = SleepModeBackendFactory.get_backend_class(NAME)
        except ValueError as error:
            problems = [str(error)]
        else:
            releases.check_overrides(found, CuMemBackend, own=("sleep_on",))
    if problems:
        raise releases.unsupported("sleep mode of load format gpuwm", problems)


class Backend(CuMemBackend):
    """The module's docstring says what it does. One of each process sleeps at a time, as vLLM's
    allocator is one of each process."""

    made: ClassVar[Backend | None] = None  # the last one of this process

    def __init__(self) -> None:
        super().__init__()
        self.waking: _Wake | None = None  # until vLLM has gone on from it
        Backend.made = self

    def suspend(self, level: int = 1) -> None:
        """Raises Busy (a switch has not ended, a CUDA stream is being captured), Unsupported and
        Lost (see Mapping.park), and errors.Error for errors of vLLM's pools. The engine is awake
        then. Raises Lost with the text "could not go back" if it is not: it can't serve."""
        models = model_loader.all_loaded()
        if not models:
            super().suspend(level)
            return
        clock, step = Clock(), _Sleep(_mappings(models))

        def sleep() -> None:
            for model in models:
                moves.make_way(model)
            _count_room(step.mappings, _awake_bytes())
            if any(not entry.is_asleep for entry in _entries().values()):
                # vLLM's level 2 drops adapters, and they would not come back with the weights.
                _named("sleep", lambda: super(Backend, self).suspend(1))
            clock.lap("pools")
            step.park()
            clock.lap("park")

        def undo() -> None:
            step.back()
            self._state = RUNNING

        self._together("sleep", models, sleep, undo)
        self._state = SUSPENDED
        _say("asleep", step.moved, clock)

    def resume(self, tags: list[str] | None = None) -> None:
        """Asks for the weights, maps vLLM's pools while they come, then waits for them. If other
        engines are awake there, it waits in turn until they park.

        Raises the errors of Mapping.unpark (TimedOut after WAKE_S, NoRoom, NotFound, Damaged,
        Lost), and errors.Error for errors of vLLM's pools. The engine sleeps as before then, and
        the call may be repeated."""
        models = model_loader.all_loaded()
        if not models:
            super().resume(tags)
            return
        clock = Clock()
        step = _Wake(_mappings(models) if tags is None or WEIGHTS in tags else [])
        step.together = _group_of(ranks_of(models), len(step.moved))
        self.waking = step

        def wake() -> None:
            if not step.begin():
                step.wait()  # in turn: other engines are awake there, and have the memory
            clock.lap("begin")
            try:
                self._wake_pools(tags)
            except Exception:
                if not step.coming:
                    raise
                # Versions that leave the GPU for these weights may have their memory there still.
                step.free_pools()
                step.wait()
                self._wake_pools(tags)
            clock.lap("pools")
            step.wait()
            clock.lap("weights")

        self._together("wake", models, wake, self.sleep_on)
        self._state = SUSPENDED if _sleeps(models) else RUNNING
        _say("awake", step.moved, clock)

    def sleep_on(self) -> None:
        """Takes the last wake back."""
        waking, self.waking = self.waking, None
        if waking is not None:
            waking.back()
            self._state = SUSPENDED

    def _wake_pools(self, tags: list[str] | None) -> None:
        """vLLM 0.25 maps a pool a second time that is awake, so it gets the tags that sleep."""
        asleep = {entry.tag for entry in _entries().values() if entry.is_asleep}
        if asleep:
            wanted = sorted(asleep if tags is None else asleep.intersection(tags))
            _named("wake", lambda: super(Backend, self).resume(wanted))

    def _together(
        self,
        what: str,
        models: list[model_loader.Loaded],
        step: Callable[[], None],
        undo: Callable[[], None],
    ) -> None:
        """Makes a step in all ranks. If a rank can't, all ranks undo it, and all of them raise."""
        failed: BaseException | None = None
        try:
            step()
        except BaseException as error:
            failed = error
        try:
            ranks_of(models).agree(what, failed)
        except BaseException as error:
            try:
                undo()
            except Exception as second:
                raise errors.Lost(
                    f"this engine could not {what}: {error}; {TORN}: {second}",
                    "it can't serve: start it again",
                ) from error
            raise


class _Sleep:
    """Parks mappings, and takes that back. moved: those that it parked."""

    def __init__(self, mappings: list[Attached]) -> None:
        self.mappings = mappings
        self._awake: list[int] = [at for at, entry in _entries().items() if not entry.is_asleep]
        self.moved: list[Attached] = []

    def park(self) -> None:
        for mapping in self.mappings:
            if not mapping.parked:
                mapping.park()
                self.moved.append(mapping)

    def back(self) -> None:
        for mapping in self.moved:
            mapping.unpark(BACK_S)
        entries = _entries()
        for at in self._awake:
            entry = entries.get(at)
            if entry is not None and entry.is_asleep:
                _map_again(at, entry)


class _Wake:
    """Unparks mappings, and takes that back. moved: those that were parked. coming: those whose
    memory is under way."""

    def __init__(self, mappings: list[Attached]) -> None:
        self.moved: list[Attached] = [mapping for mapping in mappings if mapping.parked]
        self.coming: list[Attached] = []
        self.together: Group | None = None  # the mappings of all ranks
        # The copies of pools on host are needed once more if the wake fails.
        self._asleep: dict[int, Any] = {
            at: entry.cpu_backup_tensor for at, entry in _entries().items() if entry.is_asleep
        }

    def begin(self) -> bool:
        """Whether the weights are there, or are coming. Else they have to wait for others."""
        free = True
        for mapping in self.moved:
            try:
                mapping.unpark(0, together=self.together)
            except errors.TimedOut:
                self.coming.append(mapping)
            except errors.NoRoom:
                self.coming.append(mapping)
                free = False
        return free

    def wait(self) -> None:
        while self.coming:
            self.coming[0].unpark(WAKE_S, together=self.together)
            self.coming.pop(0)

    def free_pools(self) -> None:
        """Puts the pools to sleep again that have woken. Nothing has written into them, so their
        copies on host are still right."""
        entries = _entries()
        for at, copy in self._asleep.items():
            entry = entries.get(at)
            if entry is not None and not entry.is_asleep:
                _cumem().unmap_and_release(entry.handle)
                entry.is_asleep = True
                entry.cpu_backup_tensor = copy

    def back(self) -> None:
        self.free_pools()
        for mapping in self.moved:
            mapping.park()


# ---- vLLM's pools --------------------------------------------------------------------------------


def _cumem() -> Any:
    from vllm.device_allocator import cumem

    return cumem


def _entries() -> dict[int, Any]:
    """What vLLM's allocator has made, by address."""
    from vllm import device_allocator

    allocator: Any = device_allocator.get_mem_allocator_instance()
    found: dict[int, Any] = allocator.pointer_to_data
    return found


def asleep_bytes() -> int:
    """The bytes of vLLM's pools that sleep. torch still counts them as reserved."""
    return sum(int(entry.handle[1]) for entry in _entries().values() if entry.is_asleep)


def _awake_bytes() -> int:
    return sum(int(entry.handle[1]) for entry in _entries().values() if not entry.is_asleep)


def _map_again(at: int, entry: Any) -> None:
    """Does what vLLM's allocator does with each entry that wakes."""
    cumem = _cumem()
    cumem.create_and_map(entry.handle)
    entry.is_asleep = False
    copy, entry.cpu_backup_tensor = entry.cpu_backup_tensor, None
    if copy is not None:
        cumem.libcudart.cudaMemcpy(at, copy.data_ptr(), copy.numel() * copy.element_size())


def _named(what: str, call: Callable[[], None]) -> None:
    """Errors of vLLM's allocator have no class of their own."""
    try:
        call()
    except Exception as error:
        raise errors.Error(
            f"vLLM's memory pools could not {what}: {type(error).__name__}: {error}",
            "the engine's log and gpuwmctl ps say who has the memory",
        ) from error


def take_room(room: int) -> None:
    """Tells gpuwmd how much the models of this process are going to take besides their weights.
    While other engines are awake there, it waits in turn."""
    models = model_loader.all_loaded()
    if models:
        ranks = ranks_of(models)
        group = _group_of(ranks, 1) if ranks.world > 1 else None
        _count_room(_mappings(models), room, WAKE_S, group)


def _count_room(
    mappings: list[Attached], room: int, wait: float | None = None, group: Group | None = None
) -> None:
    """From now on a wake gets its version and that much room together, or neither. If gpuwmd can't
    count it, the log says why, and a wake gets only its version."""
    first = mappings[0]
    if first.parked or (first.room == room and group is None):
        return
    try:
        first.unpark(wait, room=room, together=group)
    except errors.Error as error:
        log.warning(
            "gpuwm: gpuwmd does not count the %s GiB that this engine takes besides its weights. "
            "So a wake may find that another process has the memory. %s",
            memory.gib(room),
            error,
        )


# ---- ranks ---------------------------------------------------------------------------------------

Group = tuple[str, int]  # the name that this engine's mappings have now, and how many they are


def _group_of(ranks: Ranks, mappings: int) -> Group | None:
    """A name for so many mappings of this rank and those of the others, which are to be awake at
    once. All ranks call it. None: there is at most one. Raises RankEnded."""
    found = ranks.gather((uuid.uuid4().hex, mappings))
    count = sum(each[1] for each in found)
    return (f"vllm-{found[0][0]}", count) if count > 1 else None


# ---- models -------------------------------------------------------------------------------------


def _mappings(models: Iterable[model_loader.Loaded]) -> list[Attached]:
    return [model.mapping for model in models]


def ranks_of(models: list[model_loader.Loaded]) -> Ranks:
    """The target's are all ranks; of a draft it may be those of the last stage of a pipeline."""
    return max((model.engine.ranks for model in models), key=lambda ranks: ranks.world)


def _sleeps(models: Iterable[model_loader.Loaded]) -> bool:
    return any(mapping.parked for mapping in _mappings(models)) or any(
        entry.is_asleep for entry in _entries().values()
    )


def is_asleep() -> bool:
    """Whether the engine of this process sleeps, or a part of it does."""
    return Backend.made is not None and Backend.made.state() != RUNNING


def forget() -> None:
    """Forgets the backend of an engine that this process had before."""
    Backend.made = None


def sleep_on() -> None:
    """Takes the last wake back, after vLLM has failed to go on from it. It raises the errors of
    Mapping.park."""
    if Backend.made is not None:
        Backend.made.sleep_on()


def stay_awake() -> None:
    """The last wake is not taken back any more."""
    if Backend.made is not None:
        Backend.made.waking = None


def _say(what: str, moved: list[Attached], clock: Clock) -> None:
    log.info(
        "gpuwm: %s: %s, %s",
        what,
        ", ".join(f"{mapping.version}" for mapping in moved) or "no version",
        ", ".join(f"{step} {seconds:.3f} s" for step, seconds in clock.times.items()),
    )
