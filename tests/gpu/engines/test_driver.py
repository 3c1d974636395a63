"""The driver and its comparisons, with engines that fake.py stands in for."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
from typing import Any

import numpy
import pytest
from safetensors.numpy import save_file

import processes
import report
import running
import swapping
from memory import Gpus
from processes import HERE

BUILD = pathlib.Path(os.environ["GPUWM_BUILD"])


# ---- comparing ----------------------------------------------------------------------------------


def test_a_difference_is_named() -> None:
    one = {"equal": [[[5, 6], [{"5": "0x1p-1"}, {"6": "0x1p-2"}]]]}
    bits = {"equal": [[[5, 6], [{"5": "0x1p-1"}, {"6": "0x1.0000000000001p-2"}]]]}
    token = {"equal": [[[5, 7], [{"5": "0x1p-1"}, {"7": "0x1p-2"}]]]}
    assert report.differing({"equal": "1", "mixed": "2"}, {"equal": "1", "mixed": "3"}) == ["mixed"]
    assert report.differing({"equal": "1"}, {"equal": "1", "mixed": "3"}) == ["mixed"]
    assert report.differing({"equal": "1"}, {"equal": "1"}) == []
    assert "token 1: {'6': '0x1p-2'} and" in report.first_difference(one, bits, "equal")
    assert report.first_difference(one, token, "equal") == "equal: prompt 0, token 1: 6 and 7"
    assert "one only" in report.first_difference(one, {}, "equal")


def test_nothing_answered_is_no_equality() -> None:
    assert report.differing(None, None) == ["no batch was answered"]


def test_without_nvml_nothing_is_in_use() -> None:
    gpus = Gpus()
    if len(gpus):
        pytest.skip("there is a GPU")
    assert gpus.used_mib() == gpus.settled_mib() == []
    assert gpus.total_mib() == 0


def test_a_cold_cache_knows_the_classes_of_models(tmp_path: pathlib.Path) -> None:
    known = tmp_path / "caches" / running.COMMON / "modelinfos"
    known.mkdir(parents=True)
    (known / "llama.json").write_text("{}")
    nothing: Any = None
    run = running.Run(tmp_path, tmp_path, nothing, nothing, nothing, "")
    folder = pathlib.Path(run.cache("cold")["VLLM_CACHE_ROOT"])
    assert [path.name for path in folder.rglob("*")] == ["modelinfos", "llama.json"]


def test_a_spare_that_can_not_import_says_why(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "engine.py"
    program.write_text("import sys; sys.exit('libcudart is missing')")
    with pytest.raises(processes.Failed, match="libcudart is missing"):
        processes.Spares(str(program), tmp_path, 1).take()


def test_spares_are_made_together_and_end(tmp_path: pathlib.Path) -> None:
    spares = processes.Spares(str(HERE / "fake.py"), tmp_path, 3)
    taken = spares.take()
    spares.have(2)
    assert len(survivors(tmp_path)) == 3
    spares.have(3)
    assert len(survivors(tmp_path)) == 6
    spares.stop()
    assert taken.status() is None
    taken.kill()
    assert not survivors(tmp_path)


# ---- whole parts --------------------------------------------------------------------------------


def models(state: pathlib.Path) -> None:
    """What gpuwmctl loads, and what the fake engine only names. It makes those that are not
    there."""
    make = [sys.executable, str(HERE.parents[2] / "scripts" / "make-checkpoint")]
    (state / "models").mkdir(parents=True, exist_ok=True)
    for name in ("tiny", "dense", "small", "moe"):
        if (state / "models" / name).exists():
            continue
        words = [str(state / "models" / name), "--bytes", "64K", "--tensors", "2", "--seed", "1"]
        subprocess.run([*make, *words], check=True, capture_output=True)


def driver(
    tmp_path: pathlib.Path, *words: str, **environment: str
) -> tuple[int, str, list[dict[str, object]]]:
    """Exit status, what it printed, and its lines of JSON."""
    state, out = tmp_path / "state", tmp_path / "out"
    models(state)
    command = [
        sys.executable,
        str(HERE / "driver.py"),
        str(out),
        *words,
        "--programs",
        str(BUILD / "bin"),
    ]
    command += ["--state", str(state), "--engine", str(HERE / "fake.py")]
    command += ["--serving", str(HERE / "fake_serving.py")]
    command += ["--standing", str(HERE.parents[2] / "python/tests/standing.py")]
    command += ["--training", str(HERE / "fake_trainer.py")]
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    lines = [json.loads(line) for line in (out / "engines.jsonl").read_text().splitlines()]
    with tarfile.open(out / "logs.tar.gz") as packed:
        assert any(name.endswith("gpuwmd.log") for name in packed.getnames())
    assert (out / "engines.txt").read_text() == done.stdout
    assert sorted(path.name for path in out.iterdir()) == [
        "engines.jsonl",
        "engines.txt",
        "logs.tar.gz",
    ]
    return done.returncode, done.stdout + done.stderr, lines


SINGLE = (
    "smoke",
    "dense",
    "graphs",
    "fp8",
    "moe",
    "whole",
    "sleep",
    "lora",
    "moe-graphs",
    "fp8-graphs",
)


@pytest.mark.parametrize(
    "part", [*SINGLE, "four", "several", "kill", "tp2", "tp2-graphs", "tp2-moe"]
)
def test_a_part_passes(part: str, tmp_path: pathlib.Path) -> None:
    status, text, lines = driver(tmp_path, part)
    assert status == 0, text
    assert any(line["kind"] == "engine" or line["kind"] == "memory" for line in lines)
    assert all(line["holds"] for line in lines if line["kind"] == "check")
    assert f"-- {part}: " in text


def named(folder: pathlib.Path, *modules: str) -> None:
    """A checkpoint whose names a plan expects, in the place of the one that is there."""
    attention = [f"self_attn.{name}_proj" for name in "qkvo"]
    norms = ["input_layernorm", "post_attention_layernorm"]
    layer = [f"model.layers.0.{module}" for module in (*attention, *norms, *modules)]
    names = ["model.embed_tokens", "model.norm", *layer]
    shutil.rmtree(folder)
    folder.mkdir()
    tensors = {f"{name}.weight": numpy.zeros((4, 4), numpy.float32) for name in names}
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("options", [(), ("--one-card",)])
def test_ranks_read_a_checkpoint_that_was_cut(
    options: tuple[str, ...], tmp_path: pathlib.Path
) -> None:
    models(tmp_path / "state")
    named(tmp_path / "state/models/dense", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    named(tmp_path / "state/models/moe", "mlp.gate", "mlp.experts.0.up_proj")
    status, text, lines = driver(tmp_path, "tp2-cut", *options)
    assert status == 0, text
    assert [line["name"] for line in lines if line["kind"] == "load"] == ["dense@cut", "moe@cut"]
    assert all(line["holds"] for line in lines if line["kind"] == "check")


def test_ranks_can_share_a_card(tmp_path: pathlib.Path) -> None:
    status, text, lines = driver(tmp_path, "tp2-graphs", "--one-card")
    assert status == 0, text
    assert len([line for line in lines if line["kind"] == "engine"]) == 4


@pytest.mark.parametrize(
    ("fault", "words"), [("answers", "prompt 0, token 0"), ("dies", "illegal memory access")]
)
def test_a_fault_fails_the_part(fault: str, words: str, tmp_path: pathlib.Path) -> None:
    status, text, _ = driver(tmp_path, "dense", FAKE_FAULT=fault)
    assert status == 1
    assert words in text
    assert "FAILED: " in text


def test_a_part_that_hangs_is_given_up_and_the_next_one_runs(tmp_path: pathlib.Path) -> None:
    status, text, lines = driver(tmp_path, "smoke", "dense", "--limit", "5", FAKE_FAULT="slow")
    assert status == 1
    assert "smoke is given up after 5 s" in text
    assert "dense is given up after 5 s" in text
    assert lines
    assert not survivors(tmp_path)


# ---- switches -----------------------------------------------------------------------------------

VOCABULARY = 10  # tokens 0 to 4 are of the first version


def recorded(*pieces: tuple[float, int], mode: str = "keep", reason: str = "length") -> Any:
    """One stream with one request, whose tokens come 1 ms after their steps. The engine is switched
    once: it is paused at 2, and its resume is called at 3 and returns at 3.5."""
    request = {
        "stream": 0,
        "number": 0,
        "wanted": len(pieces),
        "asked": 0.5,
        "reason": reason,
        "error": "",
        "items": [[at + 0.001, at, [token]] for at, token in pieces],
    }
    switch = {
        "moved": True,
        "mode": mode,
        "began": 1.8,
        "ended": 3.6,
        "times": {"pause": [1.9, 2.0], "resume": [3.0, 3.5]},
        "seconds": dict.fromkeys(swapping.PHASES, 0.1),
    }
    found = {"requests": [request], "switches": [switch]}
    return swapping.Record(found, [mode], VOCABULARY)


RIGHT = ((1.0, 1), (1.95, 2), (3.7, 6), (3.8, 7))


def test_a_switch_between_two_tokens_is_right() -> None:
    record = recorded(*RIGHT)
    for found in (swapping.incomplete, swapping.out_of_order, swapping.misplaced, swapping.mixed):
        assert found(record) == []


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (((1.0, 1), (3.7, 1), (3.8, 6)), "a token of version 1 after 1 switches"),
        (((1.0, 1), (1.5, 6), (3.7, 6)), "a token of version 2 after 0 switches"),
        (((1.0, 1), (2.5, 1), (3.7, 6)), "a step ended in the pause of switch 1"),
    ],
)
def test_a_token_at_the_wrong_time_is_found(pieces: Any, words: str) -> None:
    assert words in swapping.misplaced(recorded(*pieces))[0]


def test_wrong_orders_are_found() -> None:
    assert "0 changes, 1 switches" in swapping.out_of_order(recorded((1.0, 1), (3.7, 2)))[0]
    assert "3 changes" in swapping.out_of_order(recorded((1.0, 1), (1.1, 6), (1.2, 1), (3.7, 6)))[0]
    assert "begins on the second" in swapping.out_of_order(recorded((1.0, 6), (3.7, 1)))[0]


def test_an_answer_of_both_versions_is_right_with_keep_alone() -> None:
    assert swapping.mixed(recorded(*RIGHT)) == []
    assert swapping.mixed(recorded(*RIGHT, mode="finish")) == ["request 0"]


def test_an_answer_that_ends_early_is_found() -> None:
    assert swapping.incomplete(recorded(*RIGHT, reason="abort")) == ["request 0: 4 of 4: abort"]


def test_gaps_are_in_ms() -> None:
    record = recorded(*RIGHT)
    found = swapping.gaps(record, record.moves[0])
    assert found == pytest.approx({"tokens": 1750.0, "steps": 1750.0, "idle": 1550.0})
    longest = swapping.longest(record)
    assert longest == pytest.approx({"keep": 1750.0, "none": 100.0})


def test_a_long_pause_misses_the_goal(tmp_path: pathlib.Path) -> None:
    nothing: Any = None
    gpus: Any = ["one"]
    said = report.Report(tmp_path)
    run = running.Run(tmp_path, tmp_path, said, gpus, nothing, "")
    swapping.goal(run, [10.0, 20.0, 90.0])
    assert not said.failed
    swapping.goal(run, [10.0, 60.0, 90.0])
    swapping.goal(run, [])
    assert ["1 of 3 within" in said.failed[0], "no switch" in said.failed[1]] == [True, True]


def test_too_few_switches_are_found(tmp_path: pathlib.Path) -> None:
    nothing: Any = None
    said = report.Report(tmp_path)
    run = running.Run(tmp_path, tmp_path, said, [], nothing, "", switches=(2, 0))  # type: ignore[arg-type]
    swapping.judge(run, recorded(*RIGHT))
    assert said.failed == [": 1 switches, 2 were to be"]


@pytest.mark.parametrize(("part", "times"), [("standby", 2), ("standby-http", 3)])
def test_a_standby_takes_over(tmp_path: pathlib.Path, part: str, times: int) -> None:
    status, text, lines = driver(tmp_path, part)
    assert status == 0, text
    assert sum(line["kind"] == "takeover" for line in lines) == times
    assert not survivors(tmp_path)


@pytest.mark.parametrize("part", ["swap", "swap-http"])
def test_an_engine_that_serves_is_switched(tmp_path: pathlib.Path, part: str) -> None:
    status, text, lines = driver(tmp_path, part, "--switches", "10,5")
    assert status == 0, text
    labels = {line["label"] for line in lines if line["kind"] == "switch"}
    assert labels == {"keep", "keep, killed", "keep, after", "finish", "finish, killed"}
    assert sum(line["kind"] == "switch" for line in lines) == 16
    assert any(line["kind"] == "longest" and line["label"] == "away" for line in lines)
    assert not survivors(tmp_path)


def test_answers_are_as_long_as_asked(tmp_path: pathlib.Path) -> None:
    status, text, _ = driver(
        tmp_path, "swap", "--switches", "2,2", "--answers", "20", FAKE_FAULT="short"
    )
    assert status == 1
    assert "request 5: 24 of 25: length" in text


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        (
            "fails,short,late,mixed,lenient,blind",
            (
                "FAILED none of",
                "RuntimeError: the engine is dead",
                "request 5: 263 of 264: length",
                "FAILED each of",
                "FAILED with finish",
                "FAILED a version that is not there is NotFound: it was taken",
                "FAILED without a gpuwmd it is Unreachable: Mismatch",
            ),
        ),
        ("stale", ("FAILED in each stream",)),
        ("stands", ("stand still after the switch",)),
    ],
)
def test_a_faulty_switch_fails_the_part(
    faults: str, words: tuple[str, ...], tmp_path: pathlib.Path
) -> None:
    status, text, _ = driver(tmp_path, "swap", "--switches", "2,2", FAKE_FAULT=faults)
    assert status == 1
    assert [word for word in words if word not in text] == []


# ---- sleep mode ---------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["park", "park-small"])
def test_engines_sleep_in_turn(part: str, tmp_path: pathlib.Path) -> None:
    status, text, lines = driver(tmp_path, part, "--turns", "2")
    assert status == 0, text
    ways: dict[Any, Any] = {line["way"]: line for line in lines if line["kind"] == "park"}
    assert list(ways) == ["vLLM", "tight", "wide"]
    assert sum(line["kind"] == "turn" for line in lines) == 12
    assert "wake, weights still there" not in ways["vLLM"]["seconds"]
    assert len(ways["tight"]["seconds"]["wake, weights from host"]) == 4
    assert sum("awake again" in str(line.get("what")) for line in lines) == 6
    assert not survivors(tmp_path)


def test_other_weights_after_a_wake_fail_the_part(tmp_path: pathlib.Path) -> None:
    status, text, _ = driver(tmp_path, "park-small", "--turns", "1", FAKE_FAULT="torn")
    assert status == 1
    assert "FAILED tight-1, awake again" in text.replace("park-small-", "")


# ---- quantised checkpoints ----------------------------------------------------------------------


def test_quantised_checkpoints_are_served(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("torch")
    plain = tmp_path / "state" / "models" / "tiny"
    plain.mkdir(parents=True)
    weight = numpy.zeros((256, 256), numpy.float32)
    save_file({"model.layers.0.mlp.up_proj.weight": weight}, plain / "model.safetensors")
    (plain / "config.json").write_text("{}")
    status, text, _ = driver(tmp_path, "quantised", "quantised-floats")
    assert status == 0, text
    assert text.count("built: ['built']") == text.count("attached: ['attached']") == 8


# ---- a trainer ----------------------------------------------------------------------------------


def test_engines_follow_a_trainer(tmp_path: pathlib.Path) -> None:
    status, text, lines = driver(tmp_path, "trainer", "--publishes", "4")
    assert status == 0, text
    steps = [line["step"] for line in lines if line["kind"] == "publish"]
    assert steps == [1, 2, 3, 4]
    assert sum(line["kind"] == "ipc" for line in lines) == 3
    assert not survivors(tmp_path)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("stale", "FAILED 4 publishes, both engines follow"),
        ("halves", "FAILED 4 publishes, both engines follow"),
        ("copies", "bytes were copied after loading"),
        ("keeps", "FAILED older versions are gone"),
        ("lives", "FAILED a publish that was cut off is no version"),
    ],
)
def test_a_faulty_trainer_fails_the_part(fault: str, words: str, tmp_path: pathlib.Path) -> None:
    status, text, _ = driver(tmp_path, "trainer", "--publishes", "4", FAKE_FAULT=fault)
    assert status == 1
    assert words in text


def survivors(tmp_path: pathlib.Path) -> list[str]:
    """What processes that live write into this folder."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/fd/1"):
        with contextlib.suppress(OSError):
            if str(tmp_path) in os.readlink(path):
                found.append(os.readlink(path))
    return found


def test_an_unknown_part_is_named(tmp_path: pathlib.Path) -> None:
    words = [str(tmp_path), "dens", "--programs", "/", "--state", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(HERE / "driver.py"), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "there is no part dens" in done.stderr


def test_no_process_is_left(tmp_path: pathlib.Path) -> None:
    driver(tmp_path, "smoke")
    assert not survivors(tmp_path)
