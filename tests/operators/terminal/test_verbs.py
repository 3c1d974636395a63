"""Every command of gpuwmctl fits in a terminal of 80 columns, and says there what it should."""

from __future__ import annotations

import json
import re
import subprocess

from own_gpuwmd import BUILD

from conftest import LONG, ODD, Gpuwmd, Terminal


def commands() -> list[str]:
    """The names of all commands, as gpuwmctl lists them."""
    text = subprocess.run(
        [str(BUILD / "bin/gpuwmctl"), "--help"], check=True, capture_output=True, text=True
    ).stdout
    return re.findall(r"^  ([a-z]+)  ", text, re.M)


def looking(gpuwmd: Gpuwmd) -> list[list[str]]:
    """Command lines that change nothing."""
    return [
        ["--help"],
        ["help", "--all"],
        ["help", "swap"],
        ["version"],
        ["explain"],
        ["explain", "ENOSPC"],
        ["status"],
        ["ls"],
        ["ls", "m"],
        ["ps"],
        ["clients"],
        ["jobs"],
        ["jobs", "1"],
        ["jobs", "4"],
        ["regions"],
        ["regions", "a-region-of-a-team-with-a-long-name/for-features-of-an-encoder"],
        ["show", "m"],
        ["show", LONG],
        ["ping"],
        ["wait", "m", "--for", "ready"],
        ["events", "--after", "0", "--count", "30"],
        [
            "load",
            str(gpuwmd.root / "m-v1.safetensors"),
            "m@v9",
            "--device",
            gpuwmd.device,
            "--dry-run",
        ],
    ]


def operating(gpuwmd: Gpuwmd) -> list[tuple[int, list[str], str]]:
    """Command lines in an order that makes sense, with the exit status and words of the outcome."""
    source = ["--device", gpuwmd.device]
    file = str(gpuwmd.root / "m-v1.safetensors")
    return [
        (0, ["load", file, "m@v4", *source, "--wait"], "m@v4 is ready"),
        (0, ["load", file, "m@v5", *source], "m@v5; gpuwmctl jobs"),
        (0, ["wait", "m@v5", "--for", "ready"], "m@v5 is ready"),
        (4, ["cancel", "1"], "job 1 is done already"),
        (0, ["verify", "m", "--wait"], "intact"),
        (0, ["save", "m@v5", str(gpuwmd.root / "saved")], "m@v5 is saved in"),
        (0, ["describe", "m@v5", file, "--wait"], "described: m@v5"),
        (0, ["demote", "m@v5", "--to", "files", "--wait"], "moved: m@v5 lies on files"),
        (0, ["promote", "m@v5", "--wait"], "moved: m@v5 lies on its devices"),
        (4, ["handles", "m@nosuch", "--transport", "cuda_ipc"], 'has no tag or alias "nosuch"'),
        (0, ["pin", LONG, "pin"], f"pinned: {LONG} as 'pin'"),
        (0, ["pin", LONG, "pin"], f"unchanged: {LONG} is pinned"),
        (0, ["unpin", LONG, "pin"], f"unpinned: {LONG} was pinned"),
        (0, ["alias", "m@v4", "canary"], "m@canary is now v4"),
        (0, ["swap", "m@canary", "v5"], "m@canary is now v5; it was v4"),
        (0, ["rollback", "m", "canary"], "m@canary is now v4; it was v5"),
        (0, ["swap", "m@canary", "v4"], "unchanged: m@canary is v4 already"),
        (5, ["retire", "m@v2"], "m@v2 is named by"),
        (0, ["swap", "m", "v4"], "m@current is now v4; it was v2"),
        (0, ["retire", "m@v2"], "m@v2 is retiring: 1 lease holds it"),
        (7, ["retire", "m@v2", "--wait", "1"], "time ran out"),
        (0, ["rm", "m@v5"], "m@v5 is freed"),
        (0, ["kick", "1"], "revoked: 1 lease"),
        (0, ["swap", "m", "v6", "--load", file, *source], "m@current is now v6"),
        (0, ["reload"], "without a configuration file"),
        (0, ["start"], "runs already, since"),
        (1, ["restart"], "gpuwmctl start has not started the gpuwmd"),
        (1, ["stop"], "end it where it was started"),
        (4, ["ls", "nosuch"], "model nosuch has no versions"),
        (2, ["ls", "--nosuch"], "ls has no option --nosuch"),
        (2, ["nosuch"], "there is no command"),
        (4, ["show", "m@nosuch"], 'model "m" has no tag or alias "nosuch"'),
        (5, ["drain", "--yes"], "drained: "),
        (4, ["logs"], "systemd does not run gpuwmd"),
    ]


def test_every_command_fits(gpuwmd: Gpuwmd, terminal: Terminal) -> None:
    """No line is longer than the terminal is wide; nothing wraps."""
    gpuwmd.helper("steady-pool", "a-region-of-a-team-with-a-long-name/for-features-of-an-encoder")
    tried = {"top", "doctor"}  # tests/operators/look has those
    for words in looking(gpuwmd):
        screen = terminal.run(*words)
        screen.fits()
        assert screen.code == 0, f"{words}: {screen.text}"
        tried.add(words[0])
    for code, words, outcome in operating(gpuwmd):
        screen = terminal.run(*words)
        screen.fits()
        assert screen.code == code, f"{words}: {screen.text}"
        screen.says(outcome)
        tried.add(words[0])
    assert set(commands()) <= tried, set(commands()) - tried


def test_long_names_lose_their_middle(gpuwmd: Gpuwmd, terminal: Terminal) -> None:
    """Only on a terminal, and not with -o wide."""
    screen = terminal.run("ls")
    assert re.search(r"^team/llama\S+…\S+nightly-rc\.2  current +ready ", screen.text, re.M), (
        screen.text
    )
    assert LONG in gpuwmd.ctl("ls").stdout
    assert LONG in "".join(terminal.run("ls", "-o", "wide").lines)
    narrow = terminal.run("ls", COLUMNS="40")
    assert 30 < max(len(line.rstrip()) for line in narrow.rows) <= 40, narrow.text


def test_colours(gpuwmd: Gpuwmd, terminal: Terminal) -> None:
    """On a terminal only, and not if somebody says no."""
    assert terminal.run("ls").is_coloured
    assert terminal.run("ls", "nosuch").is_coloured
    assert not terminal.run("ls", NO_COLOR="1").is_coloured
    assert not terminal.run("ls", TERM="dumb").is_coloured
    assert "\x1b" not in gpuwmd.ctl("ls").stdout
    assert "\x1b" not in gpuwmd.ctl("ls", "nosuch", check=False).stderr


def test_watch(gpuwmd: Gpuwmd, terminal: Terminal) -> None:
    """It draws anew when something happens, and gives the terminal back."""
    status = terminal.begin(["ls", "m", "--watch", "3600"])
    terminal.shows("m@v2")
    gpuwmd.ctl("alias", "m@v2", "canary")
    terminal.shows("canary")
    assert terminal.seen().count("m@v2") == 1
    terminal.press("q")
    screen = terminal.end(status)
    assert screen.code == 0
    assert "m@v2" not in screen.text, "the screen of --watch is still there"
    status = terminal.begin(["ps", "--watch"])
    terminal.shows("steady-worker")
    terminal.press("C-c")
    assert terminal.end(status).code == 0


def test_events_say_that_they_wait(gpuwmd: Gpuwmd, terminal: Terminal) -> None:
    status = terminal.begin(["events", "--count", "1"])
    terminal.shows("waiting for events; Ctrl-C ends")
    gpuwmd.ctl("alias", "m@v2", "heard")
    screen = terminal.end(status)
    assert screen.code == 0
    screen.says("swapped m@heard")


def test_drain_asks(gpuwmd: Gpuwmd, terminal: Terminal) -> None:
    """On a terminal, and takes everything but y for a no."""
    status = terminal.begin(["drain"])
    terminal.shows("[y/N]")
    terminal.press("n", "Enter")
    screen = terminal.end(status)
    screen.fits()
    screen.says("drain will retire 3 versions", "3 leases of 3 processes")
    screen.says("nothing was drained", "--yes")
    assert screen.code == 1
    status = terminal.begin(["drain"])
    terminal.shows("[y/N]")
    terminal.press("C-d")
    assert terminal.end(status).code == 1
    assert not gpuwmd.data("status")["draining"]
    status = terminal.begin(["drain"])
    terminal.shows("[y/N]")
    terminal.press("y", "Enter")
    screen = terminal.end(status)
    screen.fits()
    screen.says("drained: 0 versions are freed, 3 still held", "gpuwmctl ps lists the leases")
    assert screen.code == 5
    assert gpuwmd.data("status")["draining"]


def test_json_is_exact(gpuwmd: Gpuwmd) -> None:
    """Also texts that look like something else, a stream of events, and an error."""
    shown = gpuwmd.data("show", "m")
    assert shown["metadata"]["odd"] == ODD
    assert shown["metadata"]["no"] == "yes"
    stream = gpuwmd.ctl("-o", "json", "events", "--after", "0", "--count", "3").stdout
    assert [json.loads(line)["seq"] for line in stream.splitlines()] == [1, 2, 3]
    told = gpuwmd.ctl("-o", "json", "ls", "nosuch", check=False)
    assert json.loads(told.stderr)["error"]["exit"] == told.returncode == 4
    assert told.stdout == ""


def test_names_are_what_other_commands_take(gpuwmd: Gpuwmd) -> None:
    """Each line of -o name is a reference."""
    for version in gpuwmd.ctl("ls", "-o", "name").stdout.splitlines():
        assert gpuwmd.ctl("show", version, "-o", "name").stdout == version + "\n"
    for job in gpuwmd.ctl("jobs", "-o", "name").stdout.splitlines():
        assert gpuwmd.data("jobs", job)["jobs"][0]["job"] == int(job)
    for lease in gpuwmd.ctl("ps", "-o", "name").stdout.splitlines():
        assert json.loads(gpuwmd.ctl("-o", "json", "kick", lease).stdout)["leases"][0][
            "lease"
        ] == int(lease)
