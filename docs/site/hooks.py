"""What the web site has besides the files of docs/: README, the manual pages, and the files of the
repository that a page links to. mkdocs calls these functions (mkdocs.yml)."""

from __future__ import annotations

import pathlib
import re
import subprocess
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(((?:\.\./)+)([^)#\s]+)((?:#[^)\s]*)?)\)")
README_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)((?:#[^)\s]*)?)\)")
SOURCES = "files"  # the folder of the site that has files from outside of docs/


def manual_page(source: pathlib.Path) -> str:
    """Markdown: a title, and the page as mandoc shows it, without mandoc's head and foot."""
    roff = subprocess.run(
        ["scdoc"], stdin=source.open("rb"), check=True, capture_output=True
    ).stdout
    html = subprocess.run(
        ["mandoc", "-T", "html", "-O", "fragment"], input=roff, check=True, capture_output=True
    ).stdout.decode()
    text = html.partition('<div class="manual-text">')[2].rpartition('<table class="foot">')[0]
    text = text.replace("<h1 ", "<h2 ").replace("</h1>", "</h2>")
    name, section = source.stem.rsplit(".", 1)
    return f"# {name}({section})\n\n<div markdown=0>\n<div>{text}</div>\n"


def linked(text: str) -> set[str]:
    """The paths in the repository that a text links to outside of docs/, if they are there."""
    return {path for _, path, _ in LINK.findall(text) if (ROOT / path).is_file()}


def readme() -> str:
    """README, with links as docs/ sees them. A folder is no page: only its name stays."""

    def moved(match: re.Match[str]) -> str:
        text, path, anchor = match.groups()
        if (ROOT / path).is_dir():
            return text
        return f"[{text}]({path[5:] if path.startswith('docs/') else '../' + path}{anchor})"

    return README_LINK.sub(moved, (ROOT / "README.md").read_text())


def on_files(files: Files, config: Any) -> Files:
    pages = {"readme.md": readme()}
    for source in sorted((ROOT / "docs" / "man").glob("*.scd")):
        pages[f"man/{source.stem}.md"] = manual_page(source)
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    texts = [*pages.values(), *(file.content_string for file in files.documentation_pages())]
    for path in sorted(set[str]().union(*map(linked, texts))):
        if path != "README.md":
            data = (ROOT / path).read_bytes()
            # A page of its own would have links of its own.
            name = f"{SOURCES}/{path}" + (".txt" if path.endswith(".md") else "")
            files.append(File.generated(config, name, content=data))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    up = "../" * page.file.src_uri.count("/")

    def moved(match: re.Match[str]) -> str:
        _, path, anchor = match.groups()
        if path == "README.md":
            return f"]({up}readme.md{anchor})"
        manual = re.fullmatch(r"(?:docs/)?man/(.*)\.scd", path)
        if manual:
            return f"]({up}man/{manual[1]}.md{anchor})"
        if (ROOT / path).is_file():
            return f"]({up}{SOURCES}/{path}{'.txt' if path.endswith('.md') else ''})"
        return match[0]

    markdown = re.sub(r"\]\(man/([^)]*)\.scd\)", r"](man/\1.md)", markdown)
    return LINK.sub(moved, markdown)
