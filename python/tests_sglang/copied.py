"""Two engines in the SGLang that PYTHONPATH has, each in a fork of this process: one with the load
format gpuwm, and one without. Import `prepared` before this module."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import pathlib
import sys

from tests_engines import engines
from tests_engines.engines import Engine, Failed, Job

from . import serving

OWN = ("load_format", "model_loader_extra_config")  # arguments of the load format gpuwm


def main() -> None:
    """sys.argv: the job of the engine with the load format, as JSON. Prints a line for each engine:
    what became of it."""
    engines.processes = multiprocessing.get_context("fork")  # type: ignore[assignment]
    job = Job(**json.loads(sys.argv[1]), serving=serving.__name__)
    arguments = {name: value for name, value in job.arguments.items() if name not in OWN}
    own = dataclasses.replace(job, arguments=arguments, meet=f"{job.meet}-own")
    for each in (job, own):
        engine = Engine(each, pathlib.Path(f"{each.meet}.log"))
        try:
            engine.loaded()
            print("loaded")
        except Failed as failed:
            print(failed)
        engine.kill()
