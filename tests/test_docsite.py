"""The manual and the man page match the command line; the site loads nothing from other hosts."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docsite import events, fleet_keys, json_keys, manual, settings_table
from docsite.command_line import EXIT_CODES, Command, error_codes, groups, paragraphs
from docsite.generated import GENERATED, PAGES, names
from docsite.man_page import man_page
from docsite.page import filled_in, loads_from_elsewhere
from relay.cli.main import COMMANDS, parser_of
from support import Relay

PAGE = Path(__file__).parent.parent / "docs" / "relay.1"
ALL = {each.name: each for members in groups().values() for command in members for each in command.walk()}


def test_the_man_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == man_page(), "run `make man`"


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_groff_accepts_the_man_page() -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", PAGE], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_the_man_page_shows_options_literally() -> None:
    """They could not be copied if roff replaced their hyphens."""
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-P-cbou", PAGE], capture_output=True, text=True, check=True
    )
    shown = " ".join(done.stdout.split())
    for command in ALL.values():
        for argument in command.arguments:
            assert " ".join(argument.form.split()) in shown, f"{command.name}: {argument.form}"


def test_the_manual_has_each_command_with_all_its_options(subtests: pytest.Subtests) -> None:
    text = manual.commands()
    for name in COMMANDS:
        with subtests.test(name):
            section = text.split(f"### relay {name}\n")[1].split("\n### ")[0].replace("\\|", "|")
            for flag in set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", usage(name))) - {"-h", "--help"}:
                assert re.search(rf"(?<![\w-]){flag}\b", section), flag


def usage(name: str) -> str:
    """Return the options in `relay NAME --help`, as argparse itself prints them."""
    return "\n".join(
        re.split(r"\s{2,}", line.strip())[0]
        for line in parser_of(name).format_help().splitlines()
        if line.startswith("  -")
    )


def test_each_command_is_in_the_manual_once() -> None:
    assert [name.removeprefix("relay ") for name in ALL if name.count(" ") == 1] == list(COMMANDS)


def test_every_exit_code_of_an_error_is_documented() -> None:
    assert {str(code) for code in error_codes()} <= {each.code for each in EXIT_CODES}


def test_documented_exit_codes_are_accurate(relay: Relay) -> None:
    commands = {
        "0": ("ps",),
        "1": ("stop", "Nobody"),
        "2": ("ps", "--wrong"),
        "127": ("wrap", "no-such-command"),
    }
    commands["126"] = ("wrap", str(PAGE))
    assert {code: relay(*words, check=False).returncode for code, words in commands.items()} == {
        code: int(code) for code in commands
    }


def test_markers_are_replaced_and_unknown_ones_refused() -> None:
    found = [name for path in PAGES.glob("*.md") for name in names(path.read_text(encoding="utf-8"))]
    assert sorted(found) == sorted(GENERATED)
    assert "| 127 |" in filled_in("<!-- generated: exit codes -->")
    with pytest.raises(KeyError):
        filled_in("<!-- generated: nothing -->")


def test_the_man_page_has_all_that_is_generated() -> None:
    shown = PAGE.read_text(encoding="utf-8").replace("\\-", "-")
    for row in settings_table.rows():
        assert f"\\fB{row.name}\\fR (" in shown
    for name, fields, _ in events.rows():
        assert f"\\fB{name}\\fR{': ' if fields else ''}{', '.join(fields)}\n" in shown
    for title in fleet_keys.TABLES:
        for name, value, _, _ in fleet_keys.rows(title):
            assert f"\\fB{name}\\fR ({value}".replace('"', "\\(dq").replace("'", "\\(aq") in shown
    for output in json_keys.sections():
        assert f'.SS "{output.title}"\n' in shown
        for keys in output.rows():
            assert f"\n.B {', '.join(keys)}\n" in shown
    assert "](" not in shown  # no link is left


@dataclass
class Half:
    """Its second field has no line, and `ours` is none of its fields.

    first, ours: the meaning; None for
                 nothing.
    """

    first: int
    second: int


def test_the_keys_of_a_dataclass_come_from_its_docstring() -> None:
    @dataclass
    class Whole(Half):
        __doc__ = f"{Half.__doc__}\n    second: another.\n"

    assert json_keys.of(Whole, "a.", without=("second",), names={"first": "1st"}) == {
        "a.1st": "the meaning; `null` for nothing"
    }
    with pytest.raises(ValueError, match="the docstring of Half has no line for second"):
        json_keys.of(Half)


def test_the_table_of_events_has_fields_and_docstrings() -> None:
    rows = events.table().splitlines()
    assert "| `session_end` | `reason` | The session is about to end." in rows[-1]
    assert any(row.startswith("| `session_start` | | The agent is ready") for row in rows)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        (None, "see recipes (`examples/README.md`) and [a page](HOOKS.md#x)"),
        (
            "https://host/r/blob/main",
            "see [recipes](https://host/r/blob/main/examples/README.md#a) and [a page](HOOKS.md#x)",
        ),
    ],
)
def test_links_out_of_the_documentation_are_adapted(source: str | None, shown: str) -> None:
    assert filled_in("see [recipes](../examples/README.md#a) and [a page](HOOKS.md#x)", source) == shown


def test_a_link_named_after_its_file_gets_the_title_of_the_page() -> None:
    text = "([FLEET.md](FLEET.md#keys)), [the fleet](FLEET.md), `FLEET.md`"
    assert filled_in(text) == "([](FLEET.md#keys)), [the fleet](FLEET.md), `FLEET.md`"


@pytest.mark.parametrize(
    "text",
    [
        '<script async src="https://cdn.example/x.js">',
        '<img alt="" src="//cdn.example/x.png">',
        '<link rel="stylesheet" href="https://fonts.example/css">',
        "@import 'https://fonts.example/css'",
        "src: url(https://fonts.example/x.woff2)",
    ],
)
def test_resources_of_other_hosts_are_found(text: str) -> None:
    assert loads_from_elsewhere(text)


@pytest.mark.parametrize(
    "text", ['<a href="https://example.org/">', '<script src="_static/x.js">', "url(x.svg)"]
)
def test_resources_of_the_site_are_accepted(text: str) -> None:
    assert not loads_from_elsewhere(text)


@given(st.text(st.sampled_from("ab `*_<>[]#|\\~$"), max_size=30))
def test_prose_keeps_every_character(text: str) -> None:
    unescaped = re.sub(
        r"(`[^`]*`)|\\(.)", lambda match: match[1] or match[2], manual.prose(text), flags=re.DOTALL
    )
    assert unescaped == text


@given(st.lists(st.sampled_from(["word", "two words", "  block", "    deeper", ""]), max_size=12))
def test_paragraphs_lose_no_word(lines: list[str]) -> None:
    assert " ".join(text for _, text in paragraphs("\n".join(lines))).split() == " ".join(lines).split()


def test_the_synopsis_shows_exclusive_options() -> None:
    assert "[--ansi | --json]" in ALL["relay peek"].synopsis
    assert isinstance(ALL["relay memory save"], Command)
