"""README and docs/: links that lead somewhere, lists that are the code's, examples that run."""

from __future__ import annotations

import ast
import builtins
import errno
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import DEVICE, Daemon, by_torch
from pages import DOCS, ROOT, blocks
from torch import nn

import gpuwm
import gpuwm.image
from gpuwm.sglang import refusals as sglang_refusals
from gpuwm.sglang import settings as sglang_settings
from gpuwm.vllm import differences, refusals, settings
from gpuwm.vllm.kv import settings as kv_settings

ENGINES = ROOT / "docs" / "engines.md"
OF_ENGINES = ENGINES.with_suffix("")  # its further pages
README_LINES = 130  # what an engineer reads in five minutes
# The bundle for GPU machines has the README only.
with_docs = pytest.mark.skipif(not ENGINES.exists(), reason="docs/ is not here")


def section(path: pathlib.Path, heading: str) -> str:
    text = path.read_text()
    begin = text.index(f"\n## {heading}\n")
    return text[begin : text.find("\n## ", begin + 1)]


def first_cells(table: str) -> list[str]:
    """Of the rows of all tables, without backquotes."""
    return re.findall(r"^\| `([^`]*)`", table, re.MULTILINE)


def anchors(path: pathlib.Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


@with_docs
@pytest.mark.parametrize("path", [*sorted(ROOT.glob("*.md")), *DOCS], ids=lambda path: path.name)
def test_links_lead_somewhere(path: pathlib.Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        file, _, anchor = target.partition("#")
        named = path.parent / file if file else path
        assert named.exists(), target
        if named.parent.name != "reference":  # `make site` makes these, and looks for their anchors
            assert not anchor or anchor in anchors(named), target


@with_docs
def test_options_of_the_kv_connector() -> None:
    text = section(OF_ENGINES / "kv.md", "KV caches that move between engines")
    assert first_cells(text) == list(kv_settings.CHECKS)


def architecture() -> str:
    """Of the request in three daemons, what it says of ours: the last cells of its tables."""
    pages = [ROOT / "docs" / "architecture.md", *(ROOT / "docs" / "architecture").glob("*.md")]
    texts = {page.name: page.read_text() for page in pages}
    ours = re.findall(r"\| ([^|]*) \|$", texts["request.md"], re.MULTILINE)
    texts["request.md"] = "\n".join(ours)
    return "\n".join(texts.values())


@with_docs
def test_files_of_the_architecture_are_where_it_says() -> None:
    """A path begins at the root or at daemon/. A name without a folder is that of one file."""
    text = architecture()
    files = (path.relative_to(ROOT) for path in ROOT.glob("*/**/*.[ch]"))
    there = [path for path in files if not path.parts[0].startswith("build")]
    named = set(re.findall(r"`((?:[a-z0-9_]+/)*[a-z0-9_]+\.[ch])`", text))
    assert len(named) > 40
    for name in named:
        full = (name, f"daemon/{name}")
        places = [path for path in there if path.name == name or str(path) in full]
        assert len(places) == 1, (name, places)


# A folder, or a file with one of these endings; `*` and words in capitals stand for any text.
ENDINGS = "c|h|js|md|py|scd|sh|symbols|toml"
PLACE = re.compile(rf"`((?:[\w.*-]+/)+|(?:[\w.*-]+/)*[\w.*-]+\.(?:{ENDINGS}))`")


def places_of(name: str) -> Iterator[pathlib.Path]:
    """Where a path of the architecture leads: from the root, from daemon/, from the package of
    Python. A name without a folder may stand anywhere in the last two."""
    wanted = re.sub(r"[A-Z]{2,}(_[A-Z]+)*", "*", name)
    for base in (ROOT / "daemon", ROOT / "python" / "gpuwm"):
        yield from base.glob(wanted)
        if "/" not in wanted:
            yield from base.rglob(wanted)
    yield from ROOT.glob(wanted)


@with_docs
def test_places_of_the_architecture_are_there() -> None:
    """Folders, and files of other languages than C; files of C by a pattern."""
    text = architecture()
    named = set(PLACE.findall(text))
    assert len([name for name in named if not name.endswith((".c", ".h"))]) > 60
    of_c = re.compile(r"(?:[a-z0-9_]+/)*[a-z0-9_]+\.[ch]")  # each is one file: see above
    others = sorted(name for name in named if not of_c.fullmatch(name))
    assert [name for name in others if not any(places_of(name))] == []


@with_docs
def test_readme_leads_to_every_guide() -> None:
    """Or a guide that it leads to: docs/python.md leads to docs/python/models.md."""
    guides = [path for path in DOCS if path.parent.name in ("docs", "how-to")]
    for path in DOCS:
        above = [ROOT / "README.md"] if path in guides else guides
        links = [re.escape(f"]({os.path.relpath(path, each.parent)}") + "[#)]" for each in above]
        texts = [each.read_text() for each in above]
        assert any(map(re.search, links, texts)), path.relative_to(ROOT)


GUIDE_LINES = 400  # what one reads at a sitting
# Tables to look something up in, and what is written down for later.
NO_GUIDES = ("benchmarks/", "models.md")


@with_docs
def test_guides_have_a_length_that_is_read() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in DOCS}
    guides = {
        str(path.relative_to(ROOT / "docs")): count
        for path, count in lines.items()
        if not str(path.relative_to(ROOT / "docs")).startswith(NO_GUIDES)
    }
    assert {guide: count for guide, count in guides.items() if count > GUIDE_LINES} == {}


def test_readme_takes_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


@with_docs
def test_readme_s_starts_are_those_of_one_measurement() -> None:
    """The loaders and gpuwm, with the same bytes in the same table of the figures."""
    figures = section(ROOT / "docs" / "benchmarks.md", "Your own checkpoint, on your machine")
    table = re.findall(r"^\| ([^|]*) \| ([\d.]+) \|(.*)\|$", figures, re.MULTILINE)
    whole = {name: float(seconds) for name, seconds, _ in table}
    load = {name: float(rest.split("|")[2]) for name, _, rest in table}
    attach, once = "gpuwm: a worker attaches", load["gpuwm: load, once for all workers"]
    others = [name for name in whole if not name.startswith("gpuwm")]
    by_safetensors = "`safetensors.torch.load_file`"
    readme = (ROOT / "README.md").read_text()
    starts, loads = (
        re.findall(r"([\d.]+) s\b", row)
        for row in re.findall(r"^\| (?:a worker|of that).*", readme, re.MULTILINE)
    )
    told = [whole[by_safetensors], min(whole[name] for name in others), whole[attach]]
    assert starts == [f"{seconds:.1f}" for seconds in told]
    told = [load[by_safetensors], min(load[name] for name in others), load[attach], once]
    assert loads == [f"{seconds:.2f}" for seconds in told]


@with_docs
def test_all_options_of_the_load_format_are_there() -> None:
    told = first_cells(section(ENGINES, "Options"))
    assert sorted(told) == sorted([*settings._CHECKS, *settings.MODES])


@with_docs
def test_all_that_is_refused_is_there() -> None:
    told = section(ENGINES, "Limits")
    source = pathlib.Path(refusals.__file__).read_text()
    flags = set(re.findall(r"--[a-z-]+", source)) - {"--quantization", "--load-format"}
    flags -= {"--weight-transfer-"}  # goes on in the next line of the source
    assert {flag for flag in flags if flag not in told} == set()
    assert all(method in told.lower() for method in refusals.REFUSED_METHODS)


@with_docs
def test_sglang_s_options_and_refusals_are_there() -> None:
    told = section(OF_ENGINES / "sglang.md", "SGLang")
    source = pathlib.Path(sglang_refusals.__file__).read_text()
    flags = set(re.findall(r"--[a-z-]+", source)) - {"--quantization", "--load-format"}
    flags -= {"--speculative-draft-load-format"}
    named = {*flags, *(f"`{name}`" for name in (*sglang_settings.KEYS, *sglang_settings.INNER))}
    assert {each for each in named if each not in told} == set()


# What stands for a value: conversions of C, the pieces of Python's f-strings.
VALUES = re.compile(r"%[-+ 0#]*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z|j)?[a-zA-Z]|\{[^{}]*\}")
QUOTE = re.compile(r"`([^`]*)`")
NO_PROGRAMS = ("examples", "tests")
# A text of values alone, such as "%s: %s", is no message of its own.
LEAST_LETTERS = 8


def texts_of_c(source: str) -> Iterator[str]:
    """String literals, with neighbours joined; a macro between two, such as PRIu64, is a value."""
    literal = r'"(?:[^"\\\n]|\\.)*"'
    for found in re.finditer(rf"{literal}(?:\s*(?:PRI\w+\s*)?{literal})*", source):
        joined = re.sub(r'%[\d.]*"\s*PRI\w+\s*"', "…", found.group())
        joined = re.sub(r'"\s*"', "", joined)[1:-1]
        yield VALUES.sub("…", joined.replace('\\"', '"').replace("%%", "%"))


def texts_of_python(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else "…" for p in node.values)
            yield "".join(map(str, parts))


def program_folders() -> Iterator[pathlib.Path]:
    for folder in ROOT.iterdir():
        is_other = folder.name in NO_PROGRAMS or folder.name.startswith(("build", "."))
        if folder.is_dir() and not is_other:
            yield folder


def texts_of_programs() -> set[str]:
    """All texts of the programs, with … for each value."""
    found: set[str] = set()
    for folder in program_folders():
        for path in folder.rglob("*.c"):
            found.update(texts_of_c(path.read_text()))
    for path in (ROOT / "python" / "gpuwm").rglob("*.py"):
        found.update(texts_of_python(path.read_text()))
    return {text for text in found if len(re.sub(r"[^a-z]", "", text)) >= LEAST_LETTERS}


def pattern(text: str) -> str:
    return ".*".join(map(re.escape, text.split("…")))


def is_printed(message: str, texts: set[str]) -> bool:
    """Whether a program prints the message, or one of which it is a part."""
    part, whole = re.compile(pattern(message)), message
    return any(part.search(text) or re.fullmatch(pattern(text), whole) for text in texts)


@with_docs
def test_messages_of_troubleshooting_are_what_programs_print() -> None:
    texts = texts_of_programs()
    cells = re.findall(
        r"^\| (.*?) \|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE
    )
    rows = [cell for cell in cells if cell != "message"]
    without = [row for row in rows if not row.startswith("*") and not QUOTE.search(row)]
    assert not without, "a row has a message, or is in italics"
    messages = [
        quote
        for row in rows
        if not row.startswith("*")
        for quote in QUOTE.findall(row)
        if quote not in errno.errorcode.values() and not quote.startswith("gpuwmctl ")
    ]
    assert len(messages) > 25
    assert [message for message in messages if not is_printed(message, texts)] == []


@with_docs
def test_what_a_mismatch_says() -> None:
    with pytest.raises(gpuwm.Mismatch) as told:
        differences.compare("llama@v1", {"key.dtype": "bfloat16"}, {"dtype": "float16"})
    assert str(told.value) in " ".join(section(ENGINES, "Keys").split())


@with_docs
@by_torch
def test_the_module_image_example_works_as_pasted(daemon: Daemon) -> None:
    told = section(OF_ENGINES / "modules.md", "Any torch.nn.Module")
    found = re.search(r"```python\n(.*?)```", told, re.DOTALL)
    assert found

    def make() -> nn.Module:
        return nn.Linear(16, 16)

    names: dict[str, Any] = {"make": make, "make_without_loading": make}
    exec(found.group(1), names)
    installed = names["installed"]
    assert str(installed.mapping.version) == "net@v1"
    assert sorted(installed.shared) == ["bias", "weight"]
    again = make()
    gpuwm.image.install(again, "net@v1")
    assert gpuwm.image.differences(names["model"], again) == []
    ones = torch.ones(1, 16, device=DEVICE)
    assert torch.equal(names["model"](ones), again(ones))


def paragraph(path: pathlib.Path, words: str) -> str:
    """The paragraph, list entry or row that has these words, on one line."""
    found = [
        " ".join(each.split())
        for each in re.split(r"\n\n|\n(?=- |\| )", path.read_text())
        if words in " ".join(each.split())
    ]
    assert found, f"{path.name}: no {words!r}"
    return found[0]


def test_readme_shows_first_what_gpuwm_saves() -> None:
    """Figures with the alternative beside them, and a plot, before anything is installed."""
    first = (ROOT / "README.md").read_text().partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", first, re.MULTILINE)
    assert rows[0][1:] == ("without gpuwm", "with gpuwm")
    assert len(rows[2:]) >= 4
    assert re.search(r"!\[[^]]+\]\([\w/-]+\.svg\)", first)


@with_docs
def test_readme_asks_what_why_not_answers() -> None:
    asked = re.search(
        r"\[Why not ([^]?]+)\?\]\(docs/why-not\.md\)", (ROOT / "README.md").read_text()
    )
    assert asked
    headings = " ".join(
        re.findall(r"^## … (.*)$", (ROOT / "docs" / "why-not.md").read_text(), re.MULTILINE)
    )
    for word in re.split(r", | or ", asked.group(1)):
        *_, subject = word.split()
        assert subject in headings, word


@with_docs
def test_the_wheel_is_the_same_everywhere() -> None:
    """Its size, and the glibc for which scripts/wheel builds it."""
    found = re.search(r"^GLIBC=([\d.]+)", (ROOT / "scripts" / "wheel").read_text(), re.MULTILINE)
    assert found
    pages = [ROOT / "README.md", ROOT / "docs" / "python.md", ROOT / "python" / "DESCRIPTION.md"]
    texts = [page.read_text() for page in pages]
    assert [
        re.findall(r"glibc (?:from )?(2\.\d+) (?:on|or newer)", text)[:1] for text in texts
    ] == [[found.group(1)]] * len(pages)
    sizes = [
        re.findall(r"(?:in|has) ([\d.]+ MB), and needs no compiler", " ".join(t.split()))
        for t in texts
    ]
    assert sizes[0]
    assert sizes[0] == sizes[1]


@with_docs
def test_our_wheel_goes_into_an_environment() -> None:
    """Debian and Ubuntu refuse pip outside of one: sections that install the wheel name one."""
    told = 0
    for path in [ROOT / "README.md", *DOCS]:
        for part in path.read_text().split("\n## "):
            if re.search(r"pip install (?:\S*/)?gpuwm_client", part):
                told += 1
                assert re.search(r"-m venv|/bin/activate", part), (path.name, part.splitlines()[0])
    assert told >= 3


@with_docs
def test_commands_for_root_say_so() -> None:
    """sudo stands there, or the page's or the section's text says that they are root's."""
    of_root = re.compile(
        r"^(?:make install|apt install|usermod|systemctl (?!--user)|install -)", re.MULTILINE
    )
    told = 0
    for path in [ROOT / "README.md", *DOCS]:
        first, *parts = path.read_text().split("\n## ")
        for part in parts:
            for found in of_root.finditer(part):
                told += 1
                before = first + part[: found.start()]
                assert re.search(r"\broot's\b|\b[Aa]s root\b", before), (path.name, found.group())
    assert told >= 15


def test_two_readers_of_a_machine_are_in_nobodys_way() -> None:
    """No command has a fixed name below /tmp, nor starts a gpuwmd that nobody keeps."""
    commands = "\n".join(
        "".join(blocks(path.read_text(), "sh")) for path in [ROOT / "README.md", *DOCS]
    )
    assert re.search(r"^gpuwmctl start\b", commands, re.MULTILINE)
    assert re.search(r"/tmp/\w", commands) is None
    assert re.search(r"^gpuwmd\b(?! --check-config)", commands, re.MULTILINE) is None


@with_docs
@pytest.mark.parametrize("page", ["README.md", "docs/quick-start.md", "docs/how-to/routing.md"])
def test_examples_use_what_they_define(page: str) -> None:
    nodes = [
        node
        for block in blocks((ROOT / page).read_text(), "python")
        for node in ast.walk(ast.parse(block))
    ]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    defined = {node.id for node in names if isinstance(node.ctx, ast.Store)} | {*dir(builtins)}
    for node in nodes:
        if isinstance(node, ast.Import):
            defined |= {alias.name.partition(".")[0] for alias in node.names}
    assert names
    assert {node.id for node in names} - defined == set()


def constant(name: str) -> int:
    found = re.search(
        rf"^#define {name} (\d+)$", (ROOT / "base" / "limits.h").read_text(), re.MULTILINE
    )
    assert found
    return int(found.group(1))


@with_docs
def test_times_of_the_guides_are_those_of_the_programs() -> None:
    assert constant("GRACE_MS") == 10_000
    assert "waits up to ten seconds" in paragraph(
        ROOT / "docs" / "tutorial.md", "A *retired* version"
    )
    unit = (ROOT / "systemd" / "gpuwmd.service.in").read_text()
    again = re.search(r"^RestartSec=\w+$", unit, re.MULTILINE)
    assert again
    upgrade = paragraph(ROOT / "docs" / "how-to" / "systemd.md", "A restart takes about 0.1 s")
    assert f"`{again.group()}`" in upgrade
    assert re.search(r"`kill -9`, calls wait for [\d.]+ to [\d.]+ s", upgrade)


@with_docs
def test_an_exporter_elsewhere_keeps_the_options_of_its_unit() -> None:
    """gpuwm-exporter(8) has a command that takes the place of the unit's."""
    page = (ROOT / "docs" / "man" / "gpuwm-exporter.8.scd").read_text()
    unit = (ROOT / "systemd" / "gpuwm-exporter.service.in").read_text()
    command = r"^ExecStart=@PREFIX@/bin/gpuwm-exporter ((?:.*\\\n)*.*)$"
    told, ours = (re.search(command, text, re.MULTILINE) for text in (page, unit))
    assert told
    assert ours
    options = [sorted(re.findall(r"--[a-z-]+", found.group(1))) for found in (told, ours)]
    assert options[0] == options[1]


@with_docs
def test_readme_asks_for_the_driver_that_doctor_wants() -> None:
    doctor = (ROOT / "client" / "ctl" / "doctor" / "check_driver.c").read_text()
    wanted = re.findall(r"NVIDIA's driver (\d+) or newer", doctor)
    assert wanted
    assert re.findall(r"driver (\d+) or later", (ROOT / "README.md").read_text()) == wanted


SAID = [
    (
        "docs/limits.md",
        "Retiring returns at once",
        "the bytes come back when the last process unmaps them",
    ),
    (
        "docs/limits.md",
        "Retiring returns at once",
        "A load that the budget has room for may then fail",
    ),
    ("docs/limits.md", "Digests find damage", "with digests; readers alone took"),
    (
        "docs/how-to/operate.md",
        "--share-with REF --wait",
        "the size of a segment that `--share-with` takes by itself",
    ),
    ("docs/how-to/operate.md", "| free everything", "It also forgets the descriptions"),
    ("docs/how-to/operate.md", "from its workers |", "`gpuwmctl drain --keep-descriptions`"),
    (
        "docs/how-to/users.md",
        "`attach` names who may attach",
        "besides the owner and those whom `publish` and `operate`",
    ),
    (
        "docs/how-to/users.md",
        "| everybody who reaches its address",
        "No name of a model, a user or a file",
    ),
    ("docs/how-to/systemd.md", "`make deb` builds them", "`scripts/deps operators`"),
    ("docs/how-to/systemd.md", "If the file has an error", "systemctl prints only that it failed"),
    (
        "docs/how-to/containers.md",
        "gpuwmd's project is `gpuwm-next` then",
        "The next upgrade swaps the two names",
    ),
    ("docs/how-to/containers.md", "`docker restart` is not an upgrade", '`"live-restore": true`'),
    ("docs/how-to/containers.md", "**Workers share GPUs.**", "sharing/time-slicing.yaml"),
    (
        "docs/how-to/containers.md",
        "**The runtime class**",
        "accept-nvidia-visible-devices-envvar-when-unprivileged",
    ),
    ("docs/how-to/containers.md", "**Memory.**", "`singleProcessOOMKill: true`"),
    ("docs/how-to/containers.md", "**Pod security.**", "enforces `privileged`"),
    ("docs/how-to/containers.md", "**SELinux.**", "AppArmor"),
    (
        "docs/engines.md",
        "In all of these tests but the last",
        "the version that the engine had when it made the token",
    ),
    ("docs/tutorial.md", "The same in Python is", '`w = gpuwm.attach("demo")`'),
]


@with_docs
@pytest.mark.parametrize(("page", "about", "said"), SAID)
def test_what_readers_missed_is_said(page: str, about: str, said: str) -> None:
    """Where operators and users looked for it: in the paragraph on its subject."""
    assert said in paragraph(ROOT / page, about)
