"""The line numbers of TOML keys, in any notation."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.toml_lines import KeyPath, TomlLines
from support import many

TEXT = textwrap.dedent('''\
    # run = "a comment"
    title = """
    run = "in a string"
    [agents.Lead]
    """
    agents.Ann.run = "claude"

    [defaults]
    run = 'a'  # run = "b"

    [agents.Lead.worktree]
    run = "w"

    [ agents . "Lead" ]
    "run" = "c"
    'on_idle' = { action = "gate", run = "make" }
    on_error = [
        # the first
        { match = "network", action = "wait" },
        {
            match = "auth", run = """
    """ },
    ]

    [[agents.Lead.on_exit]]
    run = 1
    [[agents.Lead.on_exit]]
    at = 1979-05-27 07:32:00
    run = 2
    [agents.Lead.on_exit.deeper]
    run = 3
    [agents."L\\u0065o"]
    task.run = 1
''')


LINES = [
    (("title",), 2),
    (("agents", "Ann", "run"), 6),
    (("defaults",), 8),
    (("defaults", "run"), 9),
    (("agents", "Lead", "worktree", "run"), 12),
    (("agents", "Lead"), 14),
    (("agents", "Lead", "run"), 15),
    (("agents", "Lead", "on_idle", "run"), 16),
    (("agents", "Lead", "on_error", 0, "action"), 19),
    (("agents", "Lead", "on_error", 1), 20),
    (("agents", "Lead", "on_error", 1, "run"), 21),
    (("agents", "Lead", "on_exit", 0, "run"), 26),
    (("agents", "Lead", "on_exit", 1, "run"), 29),
    (("agents", "Lead", "on_exit", 1, "deeper", "run"), 31),
    (("agents", "Leo", "task", "run"), 33),
    (("agents", "Lead", "task"), 14),  # has no line of its own, so its table's
    (("nothing",), 1),
]


def test_a_key_is_found_in_its_own_table(subtests: pytest.Subtests) -> None:
    for path, line in LINES:
        with subtests.test(repr(path)):
            tomli.loads(
                TEXT.replace("agents.Ann.run", "other.Ann.run")
            )  # apart from this, the text is valid TOML
            assert TomlLines(TEXT).of(path) == line


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=6)
SCALARS = st.one_of(
    st.integers(0, 99),
    st.booleans(),
    st.text(st.sampled_from("ab#[]{}=,.\"'\\\n \u00e9"), max_size=12),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)


def quoted(text: str, draw: Any) -> str:
    ways = [json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")]
    if "'" not in text and "\n" not in text:
        ways.append(f"'{text}'")
    return str(draw(st.sampled_from(ways)))


def as_toml(value: Any, draw: Any) -> str:
    """Return `value` as TOML, in one of the possible notations."""
    space = draw(st.sampled_from(["", " ", "\n", "  # ] } '\"\n"]))
    match value:
        case bool() | int():
            return json.dumps(value)
        case str():
            if draw(st.booleans()):
                return '"""\n' + value.replace("\\", "\\\\").replace('"', '\\"') + '"""'
            if "'''" not in value and not value.endswith("'") and draw(st.booleans()):
                return f"'''\n{value}'''"
            return quoted(value, draw)
        case list():
            return "[" + space + f",{space}".join(as_toml(each, draw) for each in value) + space + "]"
        case _:
            pairs = [f"{quoted(key, draw)} = {as_toml(each, draw)}" for key, each in value.items()]
            return "{ " + ", ".join(pairs) + " }"


def paths(value: Any, path: KeyPath = ()) -> dict[KeyPath, Any]:
    """Return every key and item in `value` by its path."""
    found = {path: value} if path else {}
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if type(value) is list else ()
    for key, each in items:
        found |= paths(each, (*path, key))
    return found


@settings(max_examples=60)
@given(st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=2), max_size=3), st.data())
def test_every_key_is_on_its_line(tables: dict[str, Any], data: Any) -> None:
    lines = []
    for name, table in tables.items():
        if data.draw(st.booleans()):
            lines.append(f"[{quoted(name, data.draw)}]")
            lines += [
                f"{quoted(key, data.draw)} = {as_toml(value, data.draw)}" for key, value in table.items()
            ]
        else:  # keys before the first header
            dotted = [
                f"{quoted(name, data.draw)}.{quoted(key, data.draw)} = {as_toml(value, data.draw)}"
                for key, value in table.items()
            ]
            lines = [*(dotted or [f"{quoted(name, data.draw)} = {{}}"]), *lines]
    text = "\n".join(lines) + "\n"
    parsed = tomli.loads(text)
    assert parsed == tables
    found = TomlLines(text)
    assert found.paths == paths(parsed).keys()
    rows = text.split("\n")
    for path in paths(parsed):
        if isinstance(name := path[-1], str):
            row = rows[found.of(path) - 1]
            assert (
                json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f") in row or f"'{name}'" in row
            )


@settings(max_examples=many(300))
@given(st.text(st.sampled_from("[]{}=.,\"'#\\ab1 \n"), max_size=30))
def test_any_valid_toml_is_read_completely(text: str) -> None:
    try:
        parsed = tomli.loads(text)
    except tomli.TOMLDecodeError:
        return
    assert TomlLines(text).paths == paths(parsed).keys()
