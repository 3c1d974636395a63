"""The decorator, and what it makes of a function."""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import math
import os
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, overload

from .. import _client as clients
from .. import _connection, _election, errors, image
from .._attach import attach_mapping
from .._c import lib
from .._mapping import Mapping as Attached
from .._mode import ByMode, Mode, Wait, is_local, mode_of, wait_of
from .._shown.progress import Operation, Progress
from . import entries, local, results
from .keys import Key, Keying, model_of, slug
from .options import Options, refuse
from .results import Globs
from .submit import Build, Tell, submitted

P = ParamSpec("P")
R = TypeVar("R")

# The field of a version's key that says which arguments it was built from.
KEY_FIELD = "builder"

# How much of a key `gpuwmctl show` tells.
KEY_CHARACTERS = 1000

# Errors that say nothing about the version.
_NO_ANSWER = (errors.Unreachable, errors.Disconnected, errors.Closed, errors.InChild)

# The states of a version that is on its way.
_IN_WORK = ("building", "checking")

# The names of what is being built here, the outermost first.
_building: contextvars.ContextVar[tuple[str, ...]]
_building = contextvars.ContextVar("gpuwm_building", default=())


@overload
def builder(function: Callable[P, R], /) -> Builder[P, R]: ...


@overload
def builder(
    *,
    key: str | None = None,
    model: str | None = None,
    code: bool = False,
    ttl: float | None = None,
    keep_last: int | None = None,
    structure: Callable[..., Any] | None = None,
    ignored: Globs = (),
    private: Globs = (),
    guard: bool = True,
    device: Any = None,
    owner: lib.Owner | None = None,
    mode: Mode | None = None,
    wait: Wait = ByMode.WAIT,
    client: clients.Client | None = None,
) -> Callable[[Callable[P, R]], Builder[P, R]]: ...


def builder(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Makes a function build its result once for all processes of this machine. Called, it returns
    the result that is there, shared and read-only; or one of the processes that call it at once
    builds it, and the others wait.

    The function returns a module, a tensor, or a dict, list or tuple with tensors in it. It must
    depend on its arguments only. Other processes get the result as `gpuwm.image.module` makes it:
    they don't run the function. Each call returns objects of its own over the same memory.

    - key: what tells results apart: a text with the parameters, "model:{hidden}", and their
      attributes, "{config.name}". None: all arguments. These must be plain values, dataclasses,
      lists, tuples, dicts and sets of such, named functions and classes, or tensors that lie in a
      version (`gpuwm.share`), which count by reference; anything else raises Invalid.
    - model: the versions' model. None: the function's module and name.
    - code: the function's own code is part of the key too, but not that of what it calls.
    - ttl, keep_last: for how many seconds gpuwmd keeps a result (at most 30 days), and how many
      results of this builder. None: until it is invalidated. Whoever has a result keeps it in any
      case.
    - structure: a function that processes which attach call with the same arguments, under
      `gpuwm.empty_init`. It returns a result without values, for what no record can describe
      (`image.module` says what that is). None: the record describes the result, or the build raises
      Unsupported, with reasons.
    - ignored: globs of paths of attributes that every process has from `structure`, as in
      `gpuwm.image.publish`.
    - private, guard: as in `gpuwm.image.publish` and `gpuwm.image.module`.
    - device: where the version is. None: where the function's tensors are.
    - owner: whose results are taken, as in `gpuwm.attach`. None: only this user's.
    - mode: "auto", "load" (only attach), "save" (only build), or "local": the process asks no
      gpuwmd and keeps its results for itself, and calls with equal keys return the same object.
      None: $GPUWM_MODE, or "auto".
    - wait: how many seconds to wait for another process that builds. None does not wait, math.inf
      waits for ever. If it is not given, "load" does not wait, and "auto" waits for ever.
    - client: None: one that the process shares.

    Raises whatever the function raises, to its caller alone: the next one builds. Raises Invalid if
    the function calls itself for the same key, and all errors of `gpuwm.obtain` and
    `gpuwm.image.publish`.
    """
    found = Options(**options)
    if function is not None:
        return Builder(function, found)
    return lambda decorated: Builder(decorated, found)


@dataclasses.dataclass(frozen=True)
class _Call:
    """A call of a builder: what is to be made, under which name."""

    key: Key
    name: str
    make: Callable[[], Any]
    structure: Callable[[], Any] | None


class Builder(Generic[P, R]):
    """A function whose results are built once: see `gpuwm.builder`. Any thread may call it.

    model: of the versions that have its results.
    """

    def __init__(self, function: Callable[P, R], options: Options) -> None:
        lib.function(function, "function", "a function; the builder's options are keywords")
        refuse(function)
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._keying = Keying(function, options.key, options.code)
        self.model: str = options.model or model_of(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        call = self._call(args, kwargs)
        with Operation("build", call.name) as told:
            found: R = self._result(call, told)
        return found

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Builder[P, R]: ...

    @overload
    def __get__(self, instance: Any, owner: type | None = None) -> Any: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method of an object, which is then an argument like all others."""
        return self if instance is None else _Bound(self, instance)

    def __reduce__(self) -> str:
        """Other processes find it by its name, as they find functions."""
        return str(self._function.__qualname__)

    def __repr__(self) -> str:
        return f"<gpuwm.builder {self.model}>"

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Build[R]:
        """Calls the builder on a thread. Raises errors of the key; the future has all others. At
        most 8 calls run at once. A builder that submits another call on such a thread has its
        result when `submit` returns."""
        call = self._call(args, kwargs)
        context = contextvars.copy_context()

        def run(tell: Tell) -> Any:
            with Operation("build", call.name, tell) as told:
                return context.run(self._result, call, told)

        return submitted(call.name, run)

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The name of the version that a call returns, "model@tag"."""
        return self._call(args, kwargs).name

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """The next call with these arguments builds anew. Whoever has the result keeps it. If the
        result is being built, the call waits until it is there: it is the old one already. Returns
        whether there was one. Raises TimedOut if that takes longer than `wait`."""
        return self._forget(self._keying.of(args, kwargs).tag)

    def invalidate_all(self, prefix: str = "") -> int:
        """Does what `invalidate` does for all keys that begin with the prefix. Characters that no
        tag can have count as equal. Returns how many results there were."""
        if not isinstance(prefix, str):
            raise lib.wrong("prefix", prefix, "a str")
        start = slug(prefix)
        if is_local(self._options.mode):
            tags = [each.tag for each in self.info()] + local.building(self.model)
        else:
            tags = self._tags("ready", *_IN_WORK)
        return sum(self._forget(tag) for tag in dict.fromkeys(tags) if tag.startswith(start))

    def info(self) -> list[entries.Entry]:
        """The results that there are, the oldest first."""
        if is_local(self._options.mode):
            return local.entries(self.model)
        told = self._shared().list(self.model)["versions"]
        return [entries.entry_of(each) for each in told if each["state"] != "failed"]

    # ---- one call ----

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        key = self._keying.of(args, kwargs)
        structure = self._options.structure
        return _Call(
            key,
            f"{self.model}@{key.tag}",
            functools.partial(self._function, *args, **kwargs),
            functools.partial(structure, *args, **kwargs) if structure else None,
        )

    def _result(self, call: _Call, told: Operation) -> Any:
        options = self._options
        if is_local(self._options.mode):
            make = functools.partial(self._made, call, told)
            ttl = _endless(options.ttl)
            return local.obtained(self.model, call.key.tag, make, ttl, options.keep_last)
        mode = mode_of(options.mode, "auto")
        if mode == "save":
            return self._built(call, self._shared(), told, [])
        told.tell("attaching")
        wanted = self._wanted(call)
        wait = wait_of(options.wait, mode) if mode == "load" else None
        try:
            found = attach_mapping(
                call.name,
                wait=wait,
                progress=_within(told, "attaching"),
                client=self._shared(),
                **wanted,
            )
        except errors.Error as error:
            if mode == "load" or isinstance(error, _NO_ANSWER):
                raise
            # Nobody has made it, somebody makes it, or whoever made it failed, with any error.
            found = None
        # Outside of the handler, so that errors of the function have no other error as a context.
        return self._elected(call, wanted, told) if found is None else self._attached(call, found)

    def _elected(self, call: _Call, wanted: dict[str, Any], told: Operation) -> Any:
        """Waits for whoever builds it, or is elected. gpuwmd keeps no publish over a restart: what
        was built is published a second time then."""
        self._refuse_recursion(call)
        made: list[Any] = []
        try:
            return self._turn(call, wanted, told, made)
        except (errors.Cancelled, errors.Disconnected):
            if not made:  # the function's own error
                raise
        return self._turn(call, wanted, told, made)

    def _turn(self, call: _Call, wanted: dict[str, Any], told: Operation, made: list[Any]) -> Any:
        """Calls on a client wait for each other: this takes a client of its own. made: gets what
        was built; if it has that already, the function is not called again."""
        told.tell("waiting")
        client = _connection.connect(self._shared().socket)
        wait = wait_of(self._options.wait, "auto")
        found = _election.claim(
            client, call.name, wait=wait, progress=_within(told, "waiting"), **wanted
        )
        if found is not None:
            told.tell("attaching")
            return self._attached(call, found)
        return _election.elected(client, call.name, lambda: self._built(call, client, told, made))

    def _attached(self, call: _Call, mapping: Attached) -> Any:
        options = self._options
        with results.ordinary_mode():
            return results.attached(mapping, call.structure, options.private, options.guard)

    def _built(self, call: _Call, client: clients.Client, told: Operation, made: list[Any]) -> Any:
        value = made[0] if made else self._made(call, told)
        told.tell("publishing")
        with results.ordinary_mode():
            made[:] = [results.without_inference(value)]
            self._publish(made[0], call, client, told)
        return made[0]

    def _publish(self, value: Any, call: _Call, client: clients.Client, told: Operation) -> None:
        image.publish(
            results.holder(value),
            call.name,
            private=self._options.private,
            guard=self._options.guard,
            ignored=lib.names(self._options.ignored, "ignored"),
            makeable=call.structure is None,
            key={KEY_FIELD: call.key.digest},
            metadata={"builder.key": call.key.text[:KEY_CHARACTERS]},
            ttl=_endless(self._options.ttl),
            keep_last=self._options.keep_last,
            device=self._options.device,
            progress=_within(told, "publishing"),
            client=client,
        )

    def _made(self, call: _Call, told: Operation) -> Any:
        self._refuse_recursion(call)
        told.tell("building")
        token = _building.set((*_building.get(), call.name))
        try:
            return results.checked(call.make())
        finally:
            _building.reset(token)

    def _refuse_recursion(self, call: _Call) -> None:
        names = _building.get()
        if call.name in names:
            path = " → ".join((*names[names.index(call.name) :], call.name))
            raise errors.Invalid(f"a builder needs its own result: {path}", "end the recursion")

    # ---- gpuwmd ----

    def _shared(self) -> clients.Client:
        return self._options.client or _connection.shared()

    def _wanted(self, call: _Call) -> dict[str, Any]:
        return {
            "device": self._options.device,
            "key": {KEY_FIELD: call.key.digest},
            "owner": os.geteuid() if self._options.owner is None else self._options.owner,
        }

    def _forget(self, tag: str) -> bool:
        if is_local(self._options.mode):
            return local.invalidate(self.model, tag)
        name = f"{self.model}@{tag}"
        if self._retired(name):
            return True
        if name in _building.get():
            return False
        if self._is_being_built(tag):
            client = _connection.connect(self._shared().socket)
            _election.await_builder(client, name, wait_of(self._options.wait, "auto"))
        return self._retired(name)  # it may also have become ready since the first try

    def _retired(self, name: str) -> bool:
        """False: there is none, or none that is ready."""
        try:
            self._shared().retire(name)
        except (errors.NotFound, errors.Invalid):
            return False
        return True

    def _is_being_built(self, tag: str) -> bool:
        return tag in self._tags(*_IN_WORK)

    def _tags(self, *states: str) -> list[str]:
        """The tags of versions in one of these states, and those that processes have claimed."""
        told = self._shared().list(self.model)
        versions = [each for each in told["versions"] if each["state"] in states]
        return [each["tag"] for each in (*versions, *told["claims"])]


class _Bound:
    """A builder as a method of an object."""

    def __init__(self, builder: Builder[..., Any], instance: Any) -> None:
        self.__func__, self.__self__ = builder, instance

    def __repr__(self) -> str:
        return f"<bound {self.__func__!r} of {self.__self__!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__func__, name)
        takes_arguments = name in ("submit", "key", "invalidate")
        return functools.partial(found, self.__self__) if takes_arguments else found


def _endless(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


def _within(told: Operation, phase: str) -> Callable[[Progress], None] | None:
    """Tells how far a step of a build is. None: nobody wants to know."""
    if not told.is_heard:
        return None

    def tell(progress: Progress) -> None:
        if progress.total:
            told.tell(phase, progress.done, progress.total)

    return tell
