"""docs/reference/messages.md: the form of each message, from the tables that programs go by. mkdocs calls
on_page_markdown (mkdocs.yml). `make site` has built dump-messages, which prints the tables."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "reference/messages.md"
# The kinds of lines of dump-messages, and what the page calls them. Methods of loaders are messages, too.
TITLES = {
    "method": "Methods",
    "notification": "Notifications",
    "event": "Events",
    "record": "Maps that have a name",
}


def broken(form: str) -> str:
    """A map with each key in a line of its own, unless it is short. Inner maps stay in their lines."""
    depth, lines = 0, [""]
    for c in form:
        depth += (c in "[{(") - (c in "]})")
        lines[-1] += c
        if c == "," and depth == 1:
            lines.append("")
    short = len(form) <= 90
    return form if short else "\n  ".join(line.strip() for line in lines)


def sections() -> dict[str, str]:
    """Of each method its section in the protocol, as a link from the page."""
    found = {}
    for page in sorted((ROOT / "docs" / "protocol").glob("*.md")):
        for heading in re.findall(
            r"^### ([a-z_, ]+ \(.*)$", page.read_text(), re.MULTILINE
        ):
            anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            names, _, role = heading.partition(" (")
            for name in names.split(", "):
                who = role.removesuffix(")")
                found[name] = (
                    f"For: {who}. [What it does](../protocol/{page.name}#{anchor})."
                )
    return found


def messages() -> str:
    build = pathlib.Path(os.environ.get("BUILD", ROOT / "build"))
    printed = subprocess.run(
        [build / "tests" / "tools" / "dump-messages"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    lines = [line.split(" ", 2) for line in printed.splitlines()]
    again = {words[1] for words in lines if words[0] == "again"}
    where = sections()
    text = []
    for kind, title in TITLES.items():
        text.append(f"## {title}\n")
        for _, name, form in (words for words in lines if words[0] == kind):
            text.append(f"### {name}\n")
            text.append(
                "```\n" + "\n→ ".join(map(broken, form.split(" → "))) + "\n```\n"
            )
            told = [where[name]] if kind == "method" and name in where else []
            told += ["May be sent again."] if name in again and kind == "method" else []
            text += [" ".join(told) + "\n"] if told else []
    return "\n".join(text)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return markdown + "\n" + messages() if page.file.src_uri == PAGE else markdown
