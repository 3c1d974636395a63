"""docs/how-to/serve.md and gpuwm-serve(1) say what gpuwm-serve does."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from serving_models import Serve, serving

from gpuwm.serve import __main__ as program
from gpuwm.serve import models
from gpuwm.serve.decision import State

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = pathlib.Path(__file__).parents[2]
GUIDE = ROOT / "docs/how-to/serve.md"
GUIDE_LINES = 200
pytestmark = pytest.mark.skipif(not GUIDE.exists(), reason="docs/ is not here")


def blocks(page: str, number: int) -> str:
    command = [sys.executable, str(ROOT / "tests/operators/pages/blocks"), str(ROOT / page)]
    return subprocess.run(
        [*command, str(number)], capture_output=True, text=True, check=True
    ).stdout


def run(serve: Serve, code: str, folder: pathlib.Path) -> str:
    """A block, in a folder with the models.toml of a gpuwm-serve that runs."""
    script = folder / "gpuwm-serve"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gpuwm.serve "$@"\n')
    script.chmod(0o755)
    (folder / "models.toml").write_text(serve.file.read_text())
    code = code.replace("localhost:8000", f"127.0.0.1:{serve.port}")
    path = f"{folder}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-ec", code],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_guide_s_commands_do_what_it_says(tmp_path: pathlib.Path) -> None:
    check_and_start = blocks("docs/how-to/serve.md", 2)
    ask = blocks("docs/how-to/serve.md", 3)
    with serving({"models": {"small": {}, "coder": {}}}) as serve:
        check, start = check_and_start.splitlines()
        assert run(serve, check, tmp_path).splitlines()[0].startswith("MODEL  ENGINE  ")
        assert start == "gpuwm-serve models.toml &"  # as `serving` has started it
        assert '"content": "small small small small "' in run(serve, ask, tmp_path)


def test_the_guide_s_models_are_right() -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    found = models.parse(tomllib.loads(text), "the guide").models
    assert list(found) == ["small", "coder", "judge"]
    assert (found["coder"].idle, found["judge"].stays_awake) == (600, True)


def test_the_guide_has_all_keys_and_is_short() -> None:
    text = GUIDE.read_text()
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    told = [key for row in rows for key in re.findall(r"`(\w+)`", row)]
    assert told == [*models.OF_A_MODEL, *models.OF_SERVE]
    assert len(text.splitlines()) <= GUIDE_LINES


def test_the_dashboard_asks_for_what_there_is() -> None:
    """Names of metrics, of their labels, and of states."""
    panels = json.loads((ROOT / "exporter/grafana/gpuwm-serve.json").read_text())["panels"]
    asked = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    with serving({"models": {"a": {}, "b": {}}}, slots=1) as serve:
        serve.said("a")
        serve.said("b")
        text = serve.ask(path="/metrics")[1]
    names = set(re.findall(r"gpuwm_serve_\w+", asked))
    assert len(names) > 7
    told = re.findall(r"^(?:# TYPE )?(gpuwm_serve_\w+)", text, re.MULTILINE)
    assert names - set(told) == set()
    for labels in re.findall(r"by \(([\w, ]+)\)", asked):
        assert all(f'{label}="' in text for label in labels.split(", "))
    states = re.findall(r'state=~?"([\w |]+)"', asked)
    shown = {state for each in states for state in each.split("|")}
    assert shown == {state.value for state in State} - {"ended"}


def test_the_man_page_has_all_options(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/man/gpuwm-serve.1.scd").read_text()
    told = re.findall(r"^\*.*?(--[a-z-]+)\*", page, re.MULTILINE)
    helps = [program._parser().format_help()]
    for word in ("wake", "reload"):
        with pytest.raises(SystemExit):
            program.main([word, "--help"])
        helps.append(capsys.readouterr().out)
    found = re.findall(r"^ +(?:-h, )?(--[a-z]+)", "\n".join(helps), re.MULTILINE)
    assert set(told) == set(found)
