"""docs/protocol.md and docs/protocol/ say of each message what the table says that programs go
by."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "protocol.md"
PAGES = [DOCUMENT, *sorted(DOCUMENT.with_suffix("").glob("*.md"))]
TEXT = "\n".join(page.read_text() for page in PAGES) if DOCUMENT.exists() else ""
pytestmark = pytest.mark.skipif(not DOCUMENT.exists(), reason="docs/ is not here")

# Of keys without a type, as the document says; all others are u64.
IDS = {"version", "old", "instance"}
TEXTS = {"alias", "code", "command", "device", "kind", "message", "method", "model", "name", "note"}
TEXTS |= {"phase", "reason", "server", "source", "state", "tag", "unit", "what"}
LITERAL = re.compile(r'-?\d+|true|false|"\w*"')

Type = object  # a name, a list of one type, or a map of keys to (type, is optional, default)
Map = dict[str, tuple[Type, bool, str]]


def split(text: str) -> list[str]:
    """At commas that are in no bracket."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "[{(") - (c in "]})")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip()]


def type_of(text: str) -> Type:
    if text.startswith("{"):
        return map_of(text)
    if text.startswith("[") and " or " not in text:
        return [type_of(without_remark(text[1:-1]).strip())]
    return "text" if re.fullmatch(r'"\w+"(\|"\w+")*', text) else text


def without_remark(text: str) -> str:
    """Without what stands in parentheses at its end, unless that is a default."""
    found = re.fullmatch(r"(.*?) \(([^()]*)\)", text, re.DOTALL)
    return found[1] if found and not LITERAL.fullmatch(found[2]) else text


def untyped(key: str) -> str:
    return "id" if key in IDS else "error" if key == "error" else "text" if key in TEXTS else "u64"


def entry_of(text: str) -> tuple[str, tuple[Type, bool, str]]:
    key, _, rest = without_remark(text).partition(": ")
    if rest == "true":  # of a claim: missing in the other answer
        return key, ("bool", True, "false")
    found = re.fullmatch(r"(.*?)(\?)?(?: \(([^()]*)\))?", rest or key, re.DOTALL)
    assert found, text
    key = key.removesuffix("?")
    wanted = type_of(found[1]) if rest else untyped(key)
    return key, (
        wanted,
        bool(found[2]),
        found[3] or ("false" if wanted == "bool" and found[2] else ""),
    )


def map_of(text: str) -> Map:
    return dict(entry_of(part) for part in split(text[1:-1]))


def forms_of(program: pathlib.Path) -> list[tuple[str, str, str, str]]:
    """What a program prints of its forms: kind, name, params and result."""
    lines = subprocess.run(
        [program], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    forms = []
    for line in lines:
        kind, name, *_ = line.split(" ", 2)
        rest = line[len(kind) + len(name) + 2 :]
        params, _, result = rest.partition(" → ")
        forms.append((kind, name, params, result))
    return forms


def told() -> list[tuple[str, str, str, str]]:
    """What the table has."""
    return forms_of(pathlib.Path(os.environ["GPUWM_BUILD"]) / "tests" / "tools" / "dump-messages")


def documented() -> dict[str, list[str]]:
    """The maps behind the heading of each method: its parameters and its result."""
    methods: dict[str, list[str]] = {}
    for names, paragraph in re.findall(
        r"^### ([^(\n]*) \([^\n]*\n(.*?)\n\n", TEXT, re.MULTILINE | re.DOTALL
    ):
        maps = re.findall(r"`(\{[^`]*\})`", paragraph.replace("\n", " "))
        methods.update((name, maps) for name in names.split(", "))
    return methods


FORMS = told() if DOCUMENT.exists() else []
METHODS = {name: (params, result) for kind, name, params, result in FORMS if kind == "method"}
OF_LOADERS = {name for _, name, _, _ in FORMS if name.startswith("loader_") or name == "hand_in"}
OF_CLIENTS = sorted(set(METHODS) - OF_LOADERS)


def test_every_method_is_documented_and_every_documented_one_is_there() -> None:
    assert set(OF_CLIENTS) == set(documented())


@pytest.mark.parametrize("name", OF_CLIENTS)
def test_a_method(name: str) -> None:
    params, result = METHODS[name]
    document = documented()[name]
    assert map_of(params) == map_of(document[0])
    assert map_of(result) == map_of(document[1])


def of_loader(name: str) -> tuple[Map, Map]:
    """The parameters and the result of a message of a loader or to one, wherever they stand."""
    pattern = rf"`{name}` `(\{{[^`]*\}})`(?:[^|]*?→ `(\{{[^`]*\}})`)?"
    found = re.search(pattern, TEXT)
    assert found
    return map_of(" ".join(found[1].split())), map_of(found[2] or "{}")


def test_what_may_be_sent_again() -> None:
    lines = re.findall(r"^- (.*) may be sent again", TEXT, re.MULTILINE)
    documented_names = {name for line in lines for name in re.findall(r"`(\w+)`", line)}
    assert {name for kind, name, *_ in FORMS if kind == "again"} == documented_names


@pytest.mark.parametrize(
    ("name", "params", "result"), [form[1:] for form in FORMS if form[1] in OF_LOADERS]
)
def test_a_message_of_a_loader(name: str, params: str, result: str) -> None:
    documented_params, documented_result = of_loader(name)
    if name == "loader_devices":  # "as in loader_hello"
        documented_params["devices"] = of_loader("loader_hello")[0]["devices"]
    assert map_of(params) == documented_params
    assert map_of(result or "{}") == documented_result


NOTIFICATIONS = [form[1:3] for form in FORMS if form[0] == "notification"]


@pytest.mark.parametrize(
    ("name", "params"), [form for form in NOTIFICATIONS if not form[0].startswith("loader_")]
)
def test_a_notification(name: str, params: str) -> None:
    text = TEXT.replace("\n", " ")
    found = re.findall(rf'\[2, "{name}", \[(\{{.*?\}})\]\]', text)
    assert map_of(params) in [map_of(one) for one in found]


EVENTS = {name: keys for kind, name, keys, _ in FORMS if kind == "event"}


def test_events() -> None:
    rows = re.search(r"^\| kind \| more keys \|\n.*?\n\n", TEXT, re.MULTILINE | re.DOTALL)
    assert rows
    documented_keys = {
        kind: {} if keys.startswith("none") else map_of("{" + keys + "}")
        for kind, keys in re.findall(r"^\| `(\w+)` \| (.*) \|$", rows[0], re.MULTILINE)
    }
    assert {kind: map_of(keys) for kind, keys in EVENTS.items()} == documented_keys


@pytest.mark.parametrize(("name", "form"), [(n, p) for kind, n, p, _ in FORMS if kind == "record"])
def test_a_map_with_a_name(name: str, form: str) -> None:
    found = re.search(rf"^\*{name}\* = `(\{{[^`]*\}})`", TEXT, re.MULTILINE)
    assert found
    assert map_of(form) == map_of(found[1].replace("\n", " "))


# ---- between nodes: docs/peers.md --------------------------------------------

PEERS = DOCUMENT.with_name("peers.md")


def told_of_peers() -> list[tuple[str, str, str, str]]:
    program = pathlib.Path(os.environ["GPUWM_BUILD"]) / "tests" / "tools" / "dump-peer-messages"
    return forms_of(program) if program.exists() else []  # a build without OpenSSL has none


PEER_FORMS = told_of_peers() if DOCUMENT.exists() else []


@pytest.mark.parametrize(
    ("name", "params", "result"), [form[1:] for form in PEER_FORMS if form[0] == "method"]
)
def test_a_method_between_nodes(name: str, params: str, result: str) -> None:
    text = PEERS.read_text().replace("\n", " ")
    found = re.search(rf"### {name} \([^)]*\) `(\{{[^`]*\}})` → `(\{{[^`]*\}})`", text)
    assert found
    assert map_of(params) == map_of(found[1])
    assert map_of(result) == map_of(found[2])


@pytest.mark.parametrize(
    ("name", "params"), [form[1:3] for form in PEER_FORMS if form[0] == "notification"]
)
def test_a_notification_between_nodes(name: str, params: str) -> None:
    found = re.search(rf'\[2, "{name}", \[(\{{.*?\}})\]\]', PEERS.read_text())
    assert found
    assert map_of(params) == map_of(found[1])
