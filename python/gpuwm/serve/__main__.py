"""gpuwm-serve: the command line."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import os
import sys
from typing import Any

from .. import __version__, errors

DONE, FAILED = 0, 1  # exit statuses
WAIT_S = 3600.0  # for an answer to `wake --wait`


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 after an error, which is printed."""
    words = sys.argv[1:] if arguments is None else arguments
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    try:
        if words[:1] == ["wake"]:
            return _wake(_wake_parser().parse_args(words[1:]))
        return _serve(_parser().parse_args(words))
    except errors.Error as error:
        print(f"gpuwm-serve: {error}", file=sys.stderr)
        return FAILED
    except ModuleNotFoundError as error:
        if error.name not in ("aiohttp", "prometheus_client", "tomli"):
            raise
        print(
            f"gpuwm-serve: there is no package {error.name}: pip install 'gpuwm-client[serve]'",
            file=sys.stderr,
        )
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuwm-serve",
        description="Serves many models at one address. The model that a request names wakes, and "
        "others sleep if their room is needed.",
        epilog="gpuwm-serve wake MODEL wakes a model of the gpuwm-serve that runs.",
    )
    parser.add_argument("models", nargs="+", metavar="FILE|NAME", help="models.toml, or ORG/NAME …")
    parser.add_argument(
        "--check", action="store_true", help="say what would not fit or not work, and how long "
        "requests may wait; start nothing",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"gpuwm-serve {__version__}")
    parser.add_argument(
        "--standby",
        action="store_true",
        help="wait until the gpuwm-serve that runs has ended, then go on with its engines",
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="instead of serve.listen")
    return parser


def _wake_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuwm-serve wake", description="Wakes a model of the gpuwm-serve that runs."
    )
    parser.add_argument("model")
    parser.add_argument("--wait", action="store_true", help="return when the model is awake")
    parser.add_argument("--folder", help="serve.folder of the gpuwm-serve that runs")
    return parser


def _serve(found: argparse.Namespace) -> int:
    from . import models, server

    config = _read(found.models)
    if found.listen:
        config = dataclasses.replace(config, listen=models.listen(found.listen))
    gpuwmd = server.find_gpuwmd(config)
    config = server.complete(config, gpuwmd)
    problems = server.problems(config)
    if found.check:
        print(server.table(config))
    for each in problems:
        print(f"gpuwm-serve: {each}", file=sys.stderr)
    if found.check or problems:
        return FAILED if problems else DONE
    server.serve(config, gpuwmd, found.standby)
    return DONE


def _read(words: list[str]) -> Any:
    from . import models

    if len(words) == 1 and (words[0].endswith(".toml") or os.path.isfile(words[0])):
        return models.read(words[0])
    return models.of_names(words)


def _wake(found: argparse.Namespace) -> int:
    from . import models, server

    folder = models.Config({}).runtime_folder() if found.folder is None else found.folder
    print(asyncio.run(server.ask_to_wake(folder, found.model, found.wait, WAIT_S)))
    return DONE


if __name__ == "__main__":
    sys.exit(main())
