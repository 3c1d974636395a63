"""The arguments of `vllm serve` for an engine of a group of standbys.

They are checked twice. First as texts, so that an error comes before vLLM is imported. Then by the
gate, when vLLM has read all of them (`check`), since some come from elsewhere: abbreviations, a
file, defaults.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from .. import errors
from .memory import STANDBY_KEY

FORMAT = "gpuwm"
WORKER = "gpuwm.vllm.Worker"
GATE = "gpuwm.vllm.gate.Gate"
_EXTRA = "--model-loader-extra-config"
_SHORT = {"-asc": "--api-server-count", "-dp": "--data-parallel-size", "-n": "--nnodes"}
# Options that the command sets itself, so a file must not hide them.
_OWN = ("load-format", "worker-cls", "model-loader-extra-config")
_LOCAL_EXECUTORS = ("mp", "uni")

_ONE_SERVER = "each engine of a group has one API server: its death gives the lock back"
_DATA_PARALLEL = "the engines of data parallelism live and die apart from each other"
_TRANSFER = "a KV connector registers the KV cache's memory, which a standby does not have yet"
_ONE_MACHINE = "a standby watches processes of its own machine"
_FRONTEND = "the gate is a middleware of vLLM's Python API server"
# By option: the only values that it may have, why, and the remedy.
_ALLOWED: Mapping[str, tuple[tuple[str, ...], str, str]] = {
    "--api-server-count": (("1",), _ONE_SERVER, "leave it out"),
    "--data-parallel-size": (("1",), _DATA_PARALLEL, "start a group for each replica"),
    "--distributed-executor-backend": (_LOCAL_EXECUTORS, _ONE_MACHINE, "leave it out"),
    "--grpc": ((), _FRONTEND, "leave it out"),
    "--headless": ((), _ONE_SERVER, "leave it out"),
    "--kv-offloading-size": ((), _TRANSFER, "leave it out"),
    "--kv-transfer-config": ((), _TRANSFER, "leave it out"),
    "--load-format": ((FORMAT,), "a standby shares its weights with the active engine", "leave it "
                      'out; the loader that reads a checkpoint is "inner" in ' + _EXTRA),
    "--nnodes": (("1",), _ONE_MACHINE, "leave it out"),
    "--worker-cls": ((WORKER,), f"a standby needs what {WORKER} does", "leave it out"),
}  # fmt: skip


def complete(lock: str, given: list[str]) -> list[str]:
    """The arguments after `vllm serve`: those that were given, and what an engine of the group
    needs besides.

    Raises Invalid if the lock's folder is not there, or an option can't be read, and Unsupported
    for an option with which no engine can stand by.
    """
    path = os.path.abspath(lock)
    if not os.path.isdir(os.path.dirname(path)):
        raise errors.Invalid(
            f"--lock {lock} needs the folder {os.path.dirname(path)}, which is not there",
            "make the folder, one that only the engines' user may write",
        )
    _check_frontend()
    kept, extra = _without_extra(given)
    for option, value in _options(kept):
        _check_option(option, value)
    own = {
        "--load-format": FORMAT,
        "--worker-cls": WORKER,
        _EXTRA: json.dumps({**extra, STANDBY_KEY: path}),
    }
    present = {option for option, _ in _options(kept)}
    more = [
        text for option, value in own.items() if option not in present for text in (option, value)
    ]
    # It is last, and so the outermost: a standby refuses requests before anything else sees them.
    return [*kept, *more, "--middleware", GATE]


def command(lock: str, given: list[str]) -> list[str]:
    """The command line to execute."""
    return [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", *complete(lock, given)]


def check(state: Any) -> str:
    """The path of the lock. state: of vLLM's application. Raises Unsupported if no engine can stand
    by with what vLLM made of the arguments."""
    config = state.engine_client.vllm_config
    extra = config.load_config.model_loader_extra_config
    path = extra.get(STANDBY_KEY) if isinstance(extra, Mapping) else None
    if not isinstance(path, str) or not path:
        raise errors.Unsupported(
            f'the gate needs the path of a lock, "{STANDBY_KEY}" in {_EXTRA}',
            "start the engine with python -m gpuwm.vllm standby",
        )
    parallel = config.parallel_config
    servers = getattr(state.args, "api_server_count", None) or 1
    if servers > 1:
        raise _refused(f"--api-server-count {servers}", _ONE_SERVER, "leave it out")
    if parallel.data_parallel_size > 1:
        what = f"--data-parallel-size {parallel.data_parallel_size}"
        raise _refused(what, _DATA_PARALLEL, "start a group for each replica")
    if config.kv_transfer_config is not None:
        raise _refused("a KV connector", _TRANSFER, "leave it out")
    if config.load_config.load_format != FORMAT:
        _check_option("--load-format", str(config.load_config.load_format))
    return path


# ---- how ----


def _refused(what: str, why: str, remedy: str) -> errors.Unsupported:
    return errors.Unsupported(f"an engine with {what} can't stand by: {why}", remedy)


def _check_frontend() -> None:
    name = "VLLM_USE_RUST_FRONTEND"
    if os.environ.get(name, "0") not in ("", "0"):
        raise _refused(f"{name} in its environment", _FRONTEND, "unset it")


def _check_option(option: str, value: str | None) -> None:
    if option == "--config":
        _check_file(value)
    if option.startswith("--data-parallel-") and option != "--data-parallel-size":
        raise _refused(option, _DATA_PARALLEL, "start a group for each replica")
    if option in _ALLOWED:
        allowed, why, remedy = _ALLOWED[option]
        if value not in allowed:
            raise _refused(option if value is None else f"{option} {value}", why, remedy)


def _check_file(path: str | None) -> None:
    """Refuses a file that has these options: arguments of the command line count more than the
    file's, and would hide them."""
    try:
        with open(path or "", encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError):
        return  # vLLM will say what is wrong
    for name in _OWN:
        pattern = rf"^\s*[\"']?{name.replace('-', '[-_]')}\b"
        if re.search(pattern, text, re.MULTILINE):
            raise errors.Invalid(
                f"{name} stands in {path}, and an engine that can stand by sets it itself",
                "give it as an argument of this command",
            )


def _options(given: list[str]) -> Iterator[tuple[str, str | None]]:
    """Yields each option by its long name with dashes, and its value if it seems to have one."""
    for at, text in enumerate(given):
        if not text.startswith("-"):
            continue
        name, equals, value = text.partition("=")
        following = given[at + 1] if at + 1 < len(given) else "-"
        option = _long(name)
        yield option, value if equals else None if following.startswith("-") else following


def _long(name: str) -> str:
    if name.startswith("--"):
        return "--" + name[2:].replace("_", "-")
    if name.startswith("-dp") and name not in _SHORT:
        return "--data-parallel-" + name[3:]
    return _SHORT.get(name, name)


def _without_extra(given: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The arguments without --model-loader-extra-config, and the content of that option."""
    kept: list[str] = []
    extra: dict[str, Any] = {}
    rest = iter(given)
    for text in rest:
        name, equals, value = text.partition("=")
        option = _long(name)
        if option.startswith(_EXTRA + "."):
            raise errors.Invalid(
                f"{text} gives one key of the loader's configuration",
                f'give all of its keys at once: {_EXTRA} \'{{"ref": "llama@v1"}}\'',
            )
        if option != _EXTRA:
            kept.append(text)
            continue
        extra = _object(value if equals else next(rest, ""))
    return kept, extra


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise errors.Invalid(f"{_EXTRA} {text!r} is no JSON object", '\'{"ref": "llama@v1"}\'')
    if STANDBY_KEY in found:
        raise errors.Invalid(f'"{STANDBY_KEY}" in {_EXTRA} is what --lock says', "leave it out")
    if found.get("fallback") is not None:
        raise _refused(
            f'"fallback" in {_EXTRA}',
            "with memory of its own it has no room beside the active engine",
            "leave it out",
        )
    return found
