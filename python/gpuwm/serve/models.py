"""models.toml: the models that gpuwm-serve serves, and what each engine may take.

    [models]
    small = "Qwen/Qwen3-0.6B"
    big = { source = "/models/big", arguments = ["--max-model-len", "8192"], memory = "60 GiB" }

`read` makes a `Config` of it. docs/how-to/serve.md has all keys, and a test compares them.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import ipaddress
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .. import errors

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GIB = 1 << 30
VLLM, SGLANG, COMMAND = ENGINES = ("vllm", "sglang", "command")
FILE_BYTES_MAX = 1 << 20  # a thousand models take 100 KiB
ENGINES_MAX = 64  # of a model; as many as gpuwm.vllm.memory lets share a GPU
SOCKET_BYTES_MAX = 107  # the kernel's address has no room for a longer path
# An engine of vLLM that sleeps keeps its CUDA context and graphs: 0.87 GiB on an H200.
ASLEEP_BYTES = GIB
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,127}")
VERSION = re.compile(r"[^@]+@[^@]+")
MARK_DIGITS = 8  # of a socket's name: a model has a handful of command lines in its life
DEVICE = "0"  # the first GPU, as CUDA_VISIBLE_DEVICES numbers them
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": GIB, "TiB": 1 << 40}


@dataclasses.dataclass(frozen=True)
class Model:
    """What stands of a model in models.toml. Times are in seconds, memory in bytes.

    - source: a folder, or a model of the Hugging Face hub.
    - version: of gpuwmd, whose weights an engine takes ("llama@prod"). "": what it makes itself, or
      another engine made, of source.
    - pinned: the id of the version with which its engines have to start anew, since those that run
      can't switch to it. No key: gpuwm-serve sets it.
    - command: of the engine "command"; it may have {socket}, {port}, {source}, {version}, {name}.
    - health: the path at which the engine answers 200 when it serves.
    - parks: it listens for gpuwm.engines park and wake. What doesn't is ended instead.
    - devices: an engine takes `memory` on each of them while it is awake, and `asleep` while it
      sleeps. memory None: what the device has left while all others sleep (`complete` sets it).
    - engines: how many processes serve the model; they wake and sleep together.
    - idle, end: it parks, and ends, after so long without a request. None: only for others.
    - min_awake: nobody makes it sleep sooner after it woke.
    - drain: how long its requests may take to end when others need its room.
    - sleep, wake, start: how long these may take at most.
    - stays_awake: it never makes room for others.
    - priority: its requests count as if they had come so many seconds earlier.
    - at_start: it starts with gpuwm-serve, and not with its first request.
    """

    name: str
    source: str = ""
    version: str = ""
    pinned: str = ""
    engine: str = VLLM
    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    health: str = "/health"
    parks: bool = True
    devices: tuple[str, ...] = (DEVICE,)
    memory: int | None = None
    asleep: int = ASLEEP_BYTES
    engines: int = 1
    idle: float | None = None
    end: float | None = None
    min_awake: float = 5.0
    drain: float = 30.0
    sleep: float = 10.0
    wake: float = 30.0
    start: float = 600.0
    stays_awake: bool = False
    priority: float = 0.0
    at_start: bool = False

    @functools.cached_property
    def awake_bytes(self) -> Mapping[str, int]:
        """What the model's engines take of each device while they are awake."""
        assert self.memory is not None, "complete() sets it"
        return dict.fromkeys(self.devices, self.memory * self.engines)

    @functools.cached_property
    def asleep_bytes(self) -> Mapping[str, int]:
        """What they keep while they sleep."""
        kept = self.asleep * self.engines
        return {device: min(kept, awake) for device, awake in self.awake_bytes.items()}

    @functools.cached_property
    def freed_bytes(self) -> Mapping[str, int]:
        """What they give up when they fall asleep."""
        kept = self.asleep_bytes
        return {device: awake - kept[device] for device, awake in self.awake_bytes.items()}

    @property
    def longest_wake(self) -> float:
        """Until it serves, when there is room: what does not park, or has ended, has to start."""
        return self.wake if self.parks and self.end is None else max(self.wake, self.start)


@dataclasses.dataclass(frozen=True)
class Config:
    """- listen: host and port.
    - token: what clients have to send as a bearer token; empty: nothing.
    - budgets: what engines may take of each device, in bytes.
    - folder: sockets and logs of engines; None: this user's folder for what runs.
    - body_bytes: of a request at most.
    - connections: of clients at most.
    - log_requests: a line for each request.
    - ids: of the versions that models name, as they were when it was read.
    """

    models: Mapping[str, Model]
    listen: tuple[str, int] = ("127.0.0.1", 8000)
    token: str = ""
    budgets: Mapping[str, int] = dataclasses.field(default_factory=dict)
    folder: pathlib.Path | None = None
    body_bytes: int = 64 << 20
    connections: int = 8192
    log_requests: bool = False
    ids: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def runtime_folder(self) -> pathlib.Path:
        if self.folder is not None:
            return self.folder
        place = os.environ.get("XDG_RUNTIME_DIR") or "/tmp"
        return pathlib.Path(place) / f"gpuwm-serve-{os.geteuid()}"


# ---- reading -------------------------------------------------------------------------------------


class _Wrong(ValueError):
    """A value can't be what it is for. The text says what it has to be."""


def _text(value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    raise _Wrong("a text")


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _Wrong("true or false")


def _amount(value: Any, units: Mapping[str, float], plain: str, what: str) -> float:
    if isinstance(value, str):
        found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)", value)
        if found and found[2] in units:
            return float(found[1]) * units[found[2]]
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value) * units[plain]
    raise _Wrong(what)


def _seconds(value: Any) -> float:
    return _amount(value, SECONDS, "s", 'seconds, or a time such as "90s", "10m" or "2h"')


def _bytes(value: Any) -> int:
    return int(_amount(value, BYTES, "B", 'bytes, or a size such as "60 GiB"'))


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise _Wrong("a list of texts")


def _devices(value: Any) -> tuple[str, ...]:
    found = _texts([value] if isinstance(value, str) else value)
    if found and len(set(found)) == len(found):
        return found
    raise _Wrong('a device such as "0", or a list of different ones')


def _version(value: Any) -> str:
    if isinstance(value, str) and VERSION.fullmatch(value):
        return value
    raise _Wrong('a version of gpuwmd, such as "llama@prod"')


def _environment(value: Any) -> Mapping[str, str]:
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        return dict(value)
    raise _Wrong("a table of texts")


def _engine(value: Any) -> str:
    if value in ENGINES:
        return str(value)
    raise _Wrong(f"one of {', '.join(ENGINES)}")


def _count(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= ENGINES_MAX:
        return value
    raise _Wrong(f"a number from 1 to {ENGINES_MAX}")


def _path(value: Any) -> str:
    if isinstance(value, str) and value.startswith("/"):
        return value
    raise _Wrong('a path such as "/health"')


def _listen(value: Any) -> tuple[str, int]:
    host, _, port = _text(value).rpartition(":")
    if host and port.isdecimal() and int(port) < 1 << 16:
        return host.strip("[]"), int(port)
    raise _Wrong('an address such as "127.0.0.1:8000"')


def _connections(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise _Wrong("a number from 1 on")


Reader = Callable[[Any], Any]
OF_A_MODEL: Mapping[str, Reader] = {
    "source": _text,
    "version": _version,
    "engine": _engine,
    "command": _texts,
    "arguments": _texts,
    "environment": _environment,
    "health": _path,
    "parks": _flag,
    "devices": _devices,
    "memory": _bytes,
    "asleep": _bytes,
    "engines": _count,
    "idle": _seconds,
    "end": _seconds,
    "min_awake": _seconds,
    "drain": _seconds,
    "sleep": _seconds,
    "wake": _seconds,
    "start": _seconds,
    "stays_awake": _flag,
    "priority": _seconds,
    "at_start": _flag,
}
OF_SERVE: Mapping[str, Reader] = {
    "listen": _listen,
    "token_file": _text,
    "folder": _text,
    "body_bytes": _bytes,
    "connections": _connections,
    "log_requests": _flag,
}
TABLES = ("serve", "devices", "defaults", "models")


def read(path: str | os.PathLike[str]) -> Config:
    """Raises Invalid, which names the file, the key and what its value has to be."""
    where = os.fspath(path)
    try:
        content = pathlib.Path(where).read_bytes()
    except OSError as error:
        raise errors.Invalid(
            f"{where} can't be read: {error.strerror}",
            "give a models.toml, or models as ORG/NAME",
        ) from None
    if len(content) > FILE_BYTES_MAX:
        raise errors.Invalid(f"{where} has {len(content)} bytes", f"at most {FILE_BYTES_MAX}")
    try:
        return parse(tomllib.loads(content.decode()), where)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise errors.Invalid(f"{where} is no TOML: {error}", "see docs/how-to/serve.md") from None


def of_names(names: Sequence[str]) -> Config:
    """A configuration with a model for each name of the hub."""
    return parse({"models": {name: name for name in names}}, "the command line")


def parse(tables: Mapping[str, Any], where: str) -> Config:
    unknown = sorted(set(tables) - set(TABLES))
    if unknown:
        raise errors.Invalid(f"{where}: [{unknown[0]}]", f"the tables are {', '.join(TABLES)}")
    serve = _values(where, "serve", _table(where, tables, "serve"), OF_SERVE)
    defaults = _values(where, "defaults", _table(where, tables, "defaults"), OF_A_MODEL)
    devices = _table(where, tables, "devices")
    budgets = _values(where, "devices", devices, dict.fromkeys(devices, _bytes))
    given = _table(where, tables, "models")
    if not given:
        raise errors.Invalid(f"{where} has no models", '[models]\nsmall = "Qwen/Qwen3-0.6B"')
    models = {name: _model(where, name, value, defaults) for name, value in given.items()}
    token_file, folder = serve.pop("token_file", None), serve.pop("folder", None)
    return Config(
        models,
        budgets=budgets,
        token=_token(token_file) if token_file else "",
        folder=pathlib.Path(folder) if folder else None,
        **serve,
    )


def _table(where: str, tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = tables.get(name, {})
    if isinstance(found, dict):
        return found
    raise errors.Invalid(f"{where}: {name} is {found!r}", f"it is a table: [{name}]")


def _values(
    where: str, table: str, given: Mapping[str, Any], readers: Mapping[str, Reader]
) -> dict[str, Any]:
    found = {}
    for key, value in given.items():
        if key not in readers:
            raise errors.Invalid(f"{where}: {table}.{key}", f"the keys are {', '.join(readers)}")
        try:
            found[key] = readers[key](value)
        except _Wrong as wrong:
            raise errors.Invalid(f"{where}: {table}.{key} is {value!r}", f"it is {wrong}") from None
    return found


def _model(where: str, name: str, value: Any, defaults: Mapping[str, Any]) -> Model:
    at = f"models.{name}"
    if not NAME.fullmatch(name):
        raise errors.Invalid(
            f"{where}: the name {name!r}", "letters, digits and ._/:@+-, at most 128 of them"
        )
    if not isinstance(value, (str, dict)):
        raise errors.Invalid(f"{where}: {at} is {value!r}", "it is a source, or a table")
    given = {"source": value} if isinstance(value, str) else value
    found = {**defaults, **_values(where, at, given, OF_A_MODEL)}
    engine = found.get("engine", VLLM)
    if engine == COMMAND and not found.get("command"):
        raise errors.Invalid(f"{where}: {at} has no command", 'command = ["program", "{socket}"]')
    source = found.get("source", "")
    if engine != COMMAND and not source:
        raise errors.Invalid(f"{where}: {at} has no source", "a folder, or ORG/NAME")
    if engine != COMMAND and "@" in source and not source.startswith((".", "/")):
        raise errors.Invalid(
            f"{where}: {at}.source is {source!r}",
            "an engine reads its configuration and tokenizer from a folder or the hub: name that "
            f'with source, and the weights with version = "{source}"',
        )
    if not found.get("min_awake", Model.min_awake) + found.get("drain", Model.drain):
        raise errors.Invalid(
            f"{where}: {at} has min_awake = 0 and drain = 0",
            "two busy models would then change places without end: set one of them",
        )
    found.setdefault("parks", engine == VLLM)
    found.setdefault("asleep", ASLEEP_BYTES if found["parks"] else 0)
    return Model(name, **found)


def _token(path: str) -> str:
    try:
        found = pathlib.Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.Invalid(f"the token file {path} can't be read: {error}") from None
    if not found or not found.isascii() or not found.isprintable():
        raise errors.Invalid(f"the token file {path} has no token", "one line of ASCII characters")
    return found


def listen(text: str) -> tuple[str, int]:
    """An address of the command line. Raises Invalid."""
    try:
        return _listen(text)
    except _Wrong as wrong:
        raise errors.Invalid(f"--listen {text}", f"it is {wrong}") from None


def complete(config: Config) -> Config:
    """Sets the memory that is not given: what a device has left while all other models sleep.

    Raises Invalid if the size of a device is not known."""
    models = {}
    for name, model in config.models.items():
        missing = [device for device in model.devices if device not in config.budgets]
        if missing:
            raise errors.Invalid(
                f"models.{name}: how much engines may take of device {missing[0]} is not known",
                f'[devices]\n"{missing[0]}" = "76 GiB"',
            )
        if model.memory is None:
            left = min(_left_for(model, device, config) for device in model.devices)
            model = dataclasses.replace(model, memory=left // model.engines)
        models[name] = model
    return dataclasses.replace(config, models=models)


def _left_for(model: Model, device: str, config: Config) -> int:
    sharing = [each for each in config.models.values() if device in each.devices]
    others = [each for each in sharing if each.name != model.name]
    kept = sum(each.asleep * each.engines for each in others)
    staying = sum((each.memory or 0) * each.engines for each in others if each.stays_awake)
    return max(config.budgets[device] - kept - staying, 1)


# ---- what would not work -------------------------------------------------------------------------


class Place(NamedTuple):
    """The files of an engine. config: of SGLang, with its key."""

    socket: pathlib.Path
    log: pathlib.Path
    config: pathlib.Path


def place(folder: pathlib.Path, model: Model, number: int) -> Place:
    """Of an engine of a model. An engine that was started otherwise has another socket, so that
    nobody takes it for this one. A model's name may have characters that a file's may not."""
    name = f"{model.name.replace('/', '%2F')}.{number}"
    ends = (f"{mark(model)}.sock", "log", "yaml")
    return Place(*(folder / f"{name}.{end}" for end in ends))


def mark(model: Model) -> str:
    """Differs if engines are to be started otherwise: by another command, or on other devices."""
    what = (
        *(model.engine, model.source, model.command, model.arguments, model.devices, model.parks),
        *(sorted(model.environment.items()), model.engines, model.version, model.pinned),
    )
    return hashlib.sha256(repr(what).encode()).hexdigest()[:MARK_DIGITS]


def sockets(folder: pathlib.Path, model: Model) -> list[pathlib.Path]:
    """Of its engines."""
    return [place(folder, model, number).socket for number in range(model.engines)]


def uses_socket(model: Model) -> bool:
    """Whether its engines listen at a Unix socket; else at a port of loopback."""
    if model.engine == COMMAND:
        return any("{socket}" in word for word in model.command)
    return model.engine == VLLM


def problems(config: Config) -> list[str]:
    """What would not work, except for what does not fit: programs and files that are missing, and
    an address that everybody reaches."""
    found = []
    host, _ = config.listen
    if not config.token and not _is_loopback(host):
        found.append(
            f"serve.listen: everybody who reaches {host} could use the models: "
            "set serve.token_file, or listen at 127.0.0.1"
        )
    for model in config.models.values():
        found += [f"models.{model.name}: {each}" for each in _model_problems(config, model)]
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _model_problems(config: Config, model: Model) -> list[str]:
    found = []
    program = program_of(model)
    if shutil.which(program) is None:
        found.append(f"there is no program {program}")
    if model.source.startswith(("/", "./", "../")) and not os.path.isdir(model.source):
        found.append(f"there is no folder {model.source}")
    if model.engine == COMMAND and not any(
        "{socket}" in word or "{port}" in word for word in model.command
    ):
        found.append("its command has neither {socket} nor {port}")
    if model.parks and not uses_socket(model):
        found.append("only an engine that listens at {socket} can park: set parks = false")
    path = place(config.runtime_folder(), model, model.engines - 1).socket
    if uses_socket(model) and len(os.fsencode(path)) > SOCKET_BYTES_MAX:
        found.append(
            f"the socket {path} has {len(os.fsencode(path))} bytes, and the kernel takes "
            f"{SOCKET_BYTES_MAX}: set serve.folder to a shorter path"
        )
    return found


def program_of(model: Model) -> str:
    if model.engine == COMMAND:
        return model.command[0]
    return "vllm" if model.engine == VLLM else sys.executable
