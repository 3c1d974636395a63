"""What gpuwmd lists, as tables for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in HTML. All texts are escaped: users choose names, and errors quote them."""
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Listing(dict[str, Any]):
    """What `Client.list` returns: a dict with the keys of docs/protocol.md, which a notebook shows
    as a table of the versions."""

    def _repr_html_(self) -> str:
        aliases: dict[str, list[str]] = {}
        for each in self["aliases"]:
            aliases.setdefault(each["version"], []).append(each["alias"])
        return table(
            ("version", "aliases", "state", "where", "bytes", "tensors", "leases"),
            (
                (
                    f"{row['model']}@{row['tag']}",
                    ", ".join(aliases.get(row["version"], ())),
                    _state(row),
                    row.get("tier") or ", ".join(sorted({p["device"] for p in row["parts"]})),
                    f"{row['bytes']:,}",
                    f"{row['tensors']:,}",
                    row["leases"],
                )
                for row in self["versions"]
            ),
        )


def _state(row: dict[str, Any]) -> str:
    """The version's state, and what is wrong with it."""
    error = row.get("error") or row.get("tainted")
    return f"{row['state']}: {error['message']}" if error else str(row["state"])
