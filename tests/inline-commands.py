#!/usr/bin/env python3
"""The commands that stand in the sentences and tables of the pages: each option and each number of words is one that the
program's own help has, and gpuwmctl takes the values that are no placeholders.
    tests/inline-commands.py BUILD [PAGE]     PAGE: only prints its commands

A command is what stands in backquotes and begins with one of our programs. A name alone, such as `gpuwmctl load`, needs none of
its words.
The fenced commands are run: tests/operators/pages/run.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(sys.argv[1])
OTHERS = ["systemctl"]  # what an operator runs besides
PROGRAMS = ["gpuwmctl", "gpuwmd", "gpuwm-keeper", "gpuwm-exporter", "gpuwm-follow", "gpuwm-loader", "gpuwm-peer"]
ARCHIVE = ROOT / "docs/benchmarks"  # has the commands of its days
PAGES = [ROOT / "README.md", *sorted(page for page in ROOT.glob("docs/**/*.md") if page.parent != ARCHIVE)]
PAGES.append(ROOT / "python/DESCRIPTION.md")
MESSAGES = ROOT / "docs/troubleshooting.md"  # the first cells of its tables are messages, not commands
TABLES = ROOT / "docs/how-to/operate.md"  # behind `gpuwmctl status`, its cells say `ls` for `gpuwmctl ls`
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
QUOTE = re.compile(r"`([^`]+)`")
ANY = "…"  # in a command: whatever else it has


@dataclasses.dataclass
class Form:
    """What a program, or a command of gpuwmctl, takes."""

    options: dict[str, str]  # each with its value: "", "[SECONDS]" if it may be missing
    least: int = 0  # words
    most: int = 0


def said_by(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BUILD / "bin" / program, *words], capture_output=True, text=True, check=False)


def options_of(text: str) -> dict[str, str]:
    """-o and --output are rows of their own."""
    options = {}
    for letter, name, value in re.findall(r"^  (?:(-\w), )?(--[a-z-]+)(?: (\S+))?(?:  .*)?$", text, re.MULTILINE):
        options.update({each: value for each in (letter, name) if each})
    return options


def form_of(usage: str, options: dict[str, str]) -> Form:
    """From a usage such as: swap MODEL[@ALIAS] [TO] [--device DEVICE]... --transport cuda_ipc"""
    bare = re.sub(r"\[--[^\[\]]*(?:\[[^\]]*\])?\]|--\S+ \S+|\.\.\.", "", usage)
    words = bare.split()[1:]
    return Form(options, sum(word[0] != "[" for word in words), len(words))


@functools.cache
def commands() -> dict[str, Form]:
    """Of gpuwmctl, by their names and other names."""
    everywhere = options_of(said_by("gpuwmctl", "--help").stdout)
    forms = {}
    for text in re.split(r"^usage: gpuwmctl ", said_by("gpuwmctl", "help", "--all").stdout, flags=re.MULTILINE)[1:]:
        usage = " ".join(text.partition("\n\n")[0].split())
        other = re.findall(r"^Also: (\w+)$", text, re.MULTILINE)
        for name in [usage.split()[0], *other]:
            forms[name] = form_of(usage, everywhere | options_of(text))
    return forms


@functools.cache
def form_of_program(program: str) -> Form:
    return Form(options_of(said_by(program, "--help").stdout))


def is_placeholder(word: str) -> bool:
    return ANY in word or bool(re.search(r"\b[A-Z]{2}|\b[A-Z]\b", word))


def wrong_with(form: Form, words: list[str]) -> str:
    """What is wrong with these words and options, or an empty text."""
    plain = 0
    left = list(words)
    while left:
        word = left.pop(0)
        name, has_value, _ = word.partition("=")
        if not word.startswith("-"):
            plain += word != ANY
            continue
        if name not in form.options:
            return f"there is no option {name}"
        value = form.options[name]
        if has_value and not value:
            return f"{name} takes no value"
        if value and not has_value and left and (value[0] != "[" or left[0].isdigit()):
            left.pop(0)
    if plain > form.most:
        return f"at most {form.most} words, and no {plain}"
    if 0 < plain < form.least and ANY not in words:
        return f"at least {form.least} words, and no {plain}"
    return ""


def refused(form: Form, name: str, words: list[str]) -> str:
    """What gpuwmctl says of the options whose values are no placeholders. --help: so it does nothing else."""
    given = [name]
    left = [word for word in words if word.startswith("-") or not is_placeholder(word)]
    for at, word in enumerate(words):
        value = form.options.get(word, "")
        after = words[at + 1 : at + 2]
        if not word.startswith("-") or (value and value[0] != "[" and (not after or is_placeholder(after[0]))):
            continue
        given += [word, *(after if value and after and after[0] in left else [])]
    done = said_by("gpuwmctl", *given, "--help")
    return "" if done.returncode == 0 else done.stderr.strip()


def judge(words: list[str]) -> str:
    program, *words = words
    if program != "gpuwmctl":
        return wrong_with(form_of_program(program), words)
    if not words or words[0].startswith("-"):
        return wrong_with(Form(options_of(said_by("gpuwmctl", "--help").stdout)), words)
    form = commands().get(words[0])
    if not form:
        return f"there is no command {words[0]}"
    return wrong_with(form, words[1:]) or refused(form, words[0], words[1:])


def quotes(page: pathlib.Path) -> Iterator[list[str]]:
    """In groups: those of a cell, or of a paragraph."""
    text = FENCED.sub("", page.read_text())
    for row in re.findall(r"^\|(.*)\|$", text, re.MULTILINE):
        cells = re.split(r"(?<!\\)\|", row)
        yield from (QUOTE.findall(cell) for cell in cells[page == MESSAGES :])
    for paragraph in re.sub(r"^\|.*$", "", text, flags=re.MULTILINE).split("\n\n"):
        yield QUOTE.findall(paragraph)


def command_of(quote: str) -> list[str]:
    """Its words, without sudo and without variables."""
    words = quote.split()
    while words and (words[0] == "sudo" or re.match(r"[A-Z_]+=", words[0])):
        del words[0]
    return words


def commands_of(page: pathlib.Path) -> Iterator[list[str]]:
    for group in quotes(page):
        before = ""
        for quote in group:
            words = command_of(quote)
            if words and words[0] in [*PROGRAMS, *OTHERS]:
                before = words[0]
            elif before == "gpuwmctl" and page == TABLES and re.match("[a-z]+$", quote.split()[0]):
                words.insert(0, before)
            if words and words[0] in PROGRAMS:
                yield words


def main() -> int:
    if sys.argv[2:]:
        print("\n".join(" ".join(words) for words in commands_of(ROOT / sys.argv[2])))
        return 0
    count = failed = 0
    for page in PAGES:
        found = list(commands_of(page))
        count += len(found)
        for words in found:
            if wrong := judge(words):
                print(f"FAIL: {page.relative_to(ROOT)}: {' '.join(words)}: {wrong}")
                failed += 1
    print(f"{count} commands in sentences and tables of {len(PAGES)} pages, {failed} of them wrong")
    return failed > 0 or count == 0


if __name__ == "__main__":
    sys.exit(main())
