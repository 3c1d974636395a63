#!/usr/bin/env python3
"""scripts/run-tests itself: what it counts as passed, as failed, as skipped and as unsteady. Its programs are stand-ins."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
loader = importlib.machinery.SourceFileLoader("run_tests", str(ROOT / "scripts/run-tests"))
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_loader("run_tests", loader)
assert spec
run_tests = importlib.util.module_from_spec(spec)
sys.modules["run_tests"] = run_tests  # dataclasses look for it
loader.exec_module(run_tests)

# A stand-in for a program of Criterion. RESULTS has TEST=RESULT words. RESULT is ok, not, once (it fails the first time
# only), skip, crash, leaks (a sanitizer reports a leak of ours), stopped (LeakSanitizer met a thread that ended), cut (it
# was killed as it began to report), blind (it could not look for leaks), strange (it writes what nobody has seen), or
# ends (the program ends there).
CRITERION = """
import os, re, sys
tap = next(word[6:] for word in sys.argv if word.startswith("--tap="))
wanted = next((re.split(r"[()|@]+", word[9:]) for word in sys.argv if word.startswith("--filter=")), None)
reports = re.match(r"log_path=([^:]*):", os.environ["ASAN_OPTIONS"])[1]
ran = passed = 0
with open(tap, "w") as file:
    for test, result in (word.split("=") for word in RESULTS.split()):
        if wanted and "s/" + test not in wanted:
            print(f"ok - s::{test}  # SKIP test was skipped", file=file)
            continue
        if result == "once":
            result = "ok" if wanted else "not"
        if result == "ends":
            sys.exit(3)
        if result == "skip":
            print(f"ok - s::{test}  # SKIP no room here", file=file)
            continue
        ran += 1
        passed += result in ("ok", "leaks", "stopped", "cut", "blind", "strange")
        if result == "not":
            print(f"not ok - s::{test}  (0.00s)\\n  - a.c:1: |+\\n      why {test}", file=file)
        elif result == "crash":
            print(f"not ok - s::{test} unexpected signal after a.c:1", file=file)
        else:
            print(f"ok - s::{test}  (0.00s)", file=file)
        if result == "leaks":
            open(reports + ".1", "w").write("ERROR: LeakSanitizer: detected memory leaks\\n    #1 0x1 in f /b.c:1\\n")
        if result == "stopped":
            open(reports + ".2", "w").write("==2==Unable to get registers from thread 1.\\n")
        if result == "cut":
            open(reports + ".3", "w").write("\\n=======\\n")
        if result == "blind":
            open(reports + f".5{test}", "w").write("==5==LeakSanitizer has encountered a fatal error.\\n==5==HINT: why\\n")
        if result == "strange":
            open(reports + ".4", "w").write("\\n=======\\n==4==CHECK failed\\n")
print(f"Synthesis: Tested: {ran} | Passing: {passed} | Failing: {ran - passed} | Crashing: 0")
sys.exit(ran != passed)
"""
failed = 0


def program(folder: pathlib.Path, text: str) -> pathlib.Path:
    path = folder / "program"
    path.write_text(text)
    path.chmod(0o755)
    return path


def counts(what: str, line: str, make: "callable", *, unsteady: int = 0, says: str = "") -> None:
    """The run ends with this line, calls so many tests unsteady, and prints these words. make(build) makes the step."""
    global failed
    with tempfile.TemporaryDirectory() as name:
        build = pathlib.Path(name)
        outputs = build / "outputs"
        (build / "sanitizer").mkdir()
        outputs.mkdir()
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            steps = run_tests.with_environment(build, [make(build)])
            run_tests.run_all(steps, 2, outputs)
            lines = [line for step in steps for line in run_tests.run_again(step, outputs)]
            reports = run_tests.Step("sanitizers")
            reports.outcome.failures = run_tests.read_reports(build / "sanitizer", steps)
            code = run_tests.finish(build, [*steps, reports], lines)
        text = output.getvalue()
        found = sum(not line.startswith(" ") for line in (build / "unsteady").read_text().splitlines())
    last = text.splitlines()[-1]
    if last != line or found != unsteady or says not in text or code != (", 0 failed" not in line):
        print(f'FAIL {what}: not "{line}" with {unsteady} unsteady and "{says}", but {found} unsteady in\n{text}')
        failed += 1


def criterion(results: str):
    text = f"#!{sys.executable}\nRESULTS = {results!r}\n{CRITERION}"
    return lambda build: run_tests.Criterion(build, program(build, text))


def script(kind: str, text: str):
    return lambda build: getattr(run_tests, kind)("a script", program(build, f"#!/bin/sh\n{text}\n"))


counts("all pass", "2 passed, 0 failed", criterion("a=ok b=ok"))
counts("one is skipped", "1 passed, 0 failed, 1 skipped", criterion("a=ok b=skip"), says="1 test: no room here")
counts("one fails", "1 passed, 1 failed", criterion("a=ok b=not"), says="why b")
counts("a failure is repeated by", "1 passed, 1 failed", criterion("a=ok b=not"), says="--filter '@(s/b)'")
counts("one passes when repeated", "2 passed, 0 failed", criterion("a=ok b=once"), unsteady=1)
counts("one of two passes when repeated", "2 passed, 1 failed", criterion("a=ok b=once c=not"), unsteady=1)
counts("one passes when repeated, another crashes", "2 passed, 1 failed", criterion("a=ok b=once c=crash"), unsteady=1)
counts("many are not repeated", "0 passed, 4 failed", criterion("a=once b=once c=once d=once"))
counts("a program that ends too early", "1 passed, 1 failed", criterion("a=ok b=ends"), says="ended with 3")
counts("a sanitizer's report counts", "2 passed, 1 failed", criterion("a=ok b=leaks"), says="in f /b.c:1")
counts("a test that fails once may leak", "2 passed, 0 failed", criterion("a=once b=leaks"), unsteady=1, says="/b.c:1")
counts("a sanitizer's own trouble does not", "2 passed, 0 failed", criterion("a=ok b=stopped"))
counts("a report that was cut off does not", "2 passed, 0 failed", criterion("a=ok b=cut"))
counts("a process that is not looked at does not", "2 passed, 0 failed", criterion("a=ok b=blind"), says="HINT: why")
blind = criterion("a=blind b=blind c=blind d=blind")
counts("no process that is looked at does", "4 passed, 1 failed", blind, says="    ==5==LeakSanitizer has")
counts("what a sanitizer says otherwise does", "2 passed, 1 failed", criterion("a=ok b=strange"), says="    ==4==CHECK failed")
counts("no tests are a failure", "0 passed, 1 failed", criterion(""), says="no tests found")

counts("a script passes", "1 passed, 0 failed", script("Script", "true"))
counts("a script fails", "0 passed, 1 failed", script("Script", "echo FAIL it looks bad; exit 1"), says="it looks bad")
counts("a script can't run", "0 passed, 1 failed, 1 skipped", script("Script", "echo no room; exit 77"), says="no room")
ONCE = '[ -e "$0.ran" ] || { touch "$0.ran"; exit 1; }'
counts("a script passes when repeated", "1 passed, 0 failed", script("Script", ONCE), unsteady=1)



def says_what_runs() -> None:
    """While nothing ends. The program ends when that was said, and after 20 s."""
    global failed
    run_tests.SILENCE_SECONDS = 1
    with tempfile.TemporaryDirectory() as name:
        build = pathlib.Path(name)
        step = script("Script", 'for _ in $(seq 200); do [ ! -e "$0.told" ] || exit 0; sleep 0.1; done')(build)
        lines: list[str] = []

        def say(text: str) -> None:
            lines.append(text)
            if "have ended; now: " in text:
                (build / "program.told").touch()

        told, run_tests.say = run_tests.say, say
        run_tests.run_all([step], 1, build)
        run_tests.say = told
    if lines[:1] != ["0 of 1 have ended; now: a script"] or not lines[-1].startswith("1 of 1: a script: 1 passed in "):
        print(f"FAIL what runs, and how many of how many: {lines}")
        failed += 1


says_what_runs()

counts("pytest passes", "3 passed, 0 failed", script("Pytest", "echo 3 passed in 1s"))
FAILS = 'echo "FAILED t.py::b - why"; echo "1 failed, 4 passed in 1s"; exit 1'
counts("pytest fails", "4 passed, 1 failed", script("Pytest", FAILS), says="t.py::b - why")
ONCE = 'case $* in *t.py::b*) echo "1 passed in 1s"; exit;; esac;' + FAILS
counts("pytest passes when repeated", "5 passed, 0 failed", script("Pytest", ONCE), unsteady=1)
# A parameter's values may have anything in the test's name.
FAILS = 'echo "FAILED t.py::b[of a tensor - 1] - x[1] - y"; echo "1 failed, 4 passed in 1s"; exit 1'
ONCE = 'case $* in *"t.py::b[of a tensor - 1]") echo "1 passed in 1s"; exit;; esac;' + FAILS
counts("pytest passes when repeated by a name with spaces", "5 passed, 0 failed", script("Pytest", ONCE), unsteady=1)
counts("pytest can't begin", "0 passed, 1 failed", script("Pytest", "echo no module; exit 4"), says="no module")
ONE = 'echo "== failed"; echo "unit: s/a"; echo "    why"; echo "[ 0:01] all has ended"; echo "9 passed, 1 failed, 2 skipped"; exit 1'
counts("another check counts", "9 passed, 1 failed, 2 skipped", script("Check", ONE), says="unit: s/a")
counts("another check ends too early", "0 passed, 1 failed", script("Check", "exit 1"), says="ended with 1")
os._exit(failed > 0) if failed else print("what counts as failed: as it should be")
