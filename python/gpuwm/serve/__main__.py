"""gpuwm-serve: the command line."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

from .. import __version__, errors

DONE, FAILED = 0, 1  # exit statuses
WAIT_S = 3600.0  # for an answer to a command, `wake --wait` among them


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 after an error, which is printed."""
    words = sys.argv[1:] if arguments is None else arguments
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    try:
        if words[:1] in (["wake"], ["reload"]):
            return _command(_command_parser().parse_args(words))
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
        epilog="gpuwm-serve wake MODEL and gpuwm-serve reload are for the gpuwm-serve that runs.",
    )
    parser.add_argument("models", nargs="+", metavar="FILE|NAME", help="models.toml, or ORG/NAME …")
    parser.add_argument(
        "--check", action="store_true", help="say what would not fit or not work, and how long "
        "requests may wait; start nothing",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"gpuwm-serve {__version__}")
    text = "wait until the gpuwm-serve that runs has ended, then go on with its engines"
    parser.add_argument("--standby", action="store_true", help=text)
    parser.add_argument("--listen", metavar="HOST:PORT", help="instead of serve.listen")
    return parser


def _command_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuwm-serve", description="Commands for the gpuwm-serve that runs."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    wake = commands.add_parser("wake", help="wakes a model", description="Wakes a model.")
    wake.add_argument("model")
    wake.add_argument("--wait", action="store_true", help="return when the model is awake")
    text = "Reads models.toml again, as SIGHUP has it. If that can't be, nothing changes."
    reload = commands.add_parser("reload", help="reads models.toml again", description=text)
    for each in (wake, reload):
        each.add_argument("--folder", help="serve.folder of the gpuwm-serve that runs")
    return parser


def _serve(found: argparse.Namespace) -> int:
    from . import server

    start = server.Start(found.models, found.listen)
    problems = server.problems(start.config)
    if found.check:
        print(server.table(start.config))
    for each in problems:
        print(f"gpuwm-serve: {each}", file=sys.stderr)
    if found.check or problems:
        return FAILED if problems else DONE
    server.serve(start, found.standby)
    return DONE


def _command(found: argparse.Namespace) -> int:
    from . import commands, models

    folder = models.Config({}).runtime_folder() if found.folder is None else found.folder
    asked = {"model": found.model, "wait": found.wait} if found.command == "wake" else {}
    print(asyncio.run(commands.ask(folder, found.command, asked, WAIT_S)))
    return DONE


if __name__ == "__main__":
    sys.exit(main())
