"""Ctrl-] and a letter in every encoding that a terminal sends; everything else passes unchanged."""

from __future__ import annotations

import itertools

import pytest

from relay.shim.command_keys import ESCAPE_TIMEOUT, SPLIT_TIMEOUT, CommandKeys, help_text, split_reports
from relay.shim.user_terminal import Keyboard

ESCAPES = [b"\x1d", b"\x1b[93;5u", b"\x1b[93;5:1u", b"\x1b[93;133u", b"\x1b[93::93;5u", b"\x1b[27;5;93~"]
D_KEYS = [b"d", b"D", b"\x1b[100u", b"\x1b[100;1u", b"\x1b[100;1:1u", b"\x1b[100;129u"]
RELEASES = [b"", b"\x1b[93;5:3u", b"\x1b[93;5:3u\x1b[57442;1:3u"]


def _feed(pieces: list[bytes], prefix: str = "C-]") -> tuple[bytes, str]:
    keys = CommandKeys(prefix)
    passed = b""
    for piece in pieces:
        now, command = keys.feed(piece)
        passed += now
        if command:
            return passed, command
    return passed + keys.flush(), ""


def _splits(data: bytes) -> list[list[bytes]]:
    """Return `data` in one piece, split in two at every position, and byte by byte."""
    halves = [[data[:at], data[at:]] for at in range(1, len(data))]
    return [[data], *halves, [data[at : at + 1] for at in range(len(data))]]


def test_the_prefix_and_d_detach(subtests: pytest.Subtests) -> None:
    for escape, between, d in itertools.product(ESCAPES, RELEASES, D_KEYS):
        with subtests.test(repr(escape + between + d)):
            for pieces in _splits(b"ab\x1b[A" + escape + between + d):
                assert _feed(pieces) == (b"ab\x1b[A", "detach"), pieces


UNRELATED = [
    b"abc",
    b"\x1b",
    b"\x1b\x1b",
    b"\x1b[A\x1b[1;5C\x1bOP",
    b"\x1bd",
    b"\x1dx",
    b"\x1d",
    b"\x1d\x1b[A",
    b"\x1b[93;5ux",
    b"\x1b[93;5u\x1b[93;5:3u",
    b"\x1b[93;1ud",
    b"\x1b[93u\x1b[100u",
    b"\x1b[93;6ud",
    b"\x1b[93;5:3ud",
    b"\x1b[93;5u\x1b[100;5u",
    b"\x1b[27;5;94~d",
    b"\x1b[27;6;93~d",
    b"\x1b[" + b"1;" * 50 + b"mend",
    b"\x1b[200~a\x1b[201~",
    b"\x1b[<0;10;20M",
    bytes(range(0x1D)) + bytes(range(0x1E, 256)),
]


def test_what_the_terminal_reports_between_the_two_keys_reaches_the_agent(subtests: pytest.Subtests) -> None:
    """A program that follows the mouse, or keeps asking, does not lock its user in."""
    for report in [b"\x1b[<35;4;5M", b"\x1b[I", b"\x1b[?62;22c\x1b]11;rgb:0/0/0\x07", b"\x1b[5;9R"]:
        for pieces in [b"a\x1d" + report + b"d"], [b"a\x1d", report, report, b"d"]:
            with subtests.test(repr(pieces)):
                assert _feed(pieces) == (b"a" + report * b"".join(pieces).count(report), "detach")


def test_everything_else_passes_unchanged(subtests: pytest.Subtests) -> None:
    for data in UNRELATED:
        with subtests.test(repr(data)):
            for pieces in _splits(data):
                assert _feed(pieces) == (data, ""), pieces


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_doubled_prefix_is_sent_once(escape: bytes) -> None:
    for pieces in _splits(b"a" + escape + escape + b"d"):
        assert _feed(pieces) == (b"a" + escape + b"d", ""), pieces


def test_an_incomplete_sequence_is_held_only_briefly() -> None:
    keys = CommandKeys("C-]")
    for data, patience in [
        (b"a", None),
        (b"\x1b", SPLIT_TIMEOUT),
        (b"[93;5", SPLIT_TIMEOUT),
        (b"u", ESCAPE_TIMEOUT),
        (b"\x1b[", SPLIT_TIMEOUT),
        (b"x", None),
    ]:
        keys.feed(data)
        assert keys.patience == patience
    assert keys.flush() == b""


OTHER_KEYS = {
    "next": [b"n", b"N", b"\x1b[110u", b"\x1b[110;1:1u", b"\x1b[110;2u"],
    "previous": [b"p", b"P", b"\x1b[112u", b"\x1b[112;129u"],
    "help": [b"?", b"\x1b[63u", b"\x1b[47;2u", b"\x1b[47:63;2u", b"\x1b[223:63:45;2:1u"],
}


def test_the_prefix_and_another_key_run_its_command(subtests: pytest.Subtests) -> None:
    commands = [(command, key) for command, keys in OTHER_KEYS.items() for key in keys]
    for escape, (command, second) in itertools.product(ESCAPES, commands):
        with subtests.test(repr(escape + second)):
            for pieces in _splits(b"ab" + escape + second):
                assert _feed(pieces) == (b"ab", command), pieces


@pytest.mark.parametrize(
    ("prefix", "forms"),
    [
        ("C-a", [b"\x01", b"\x1b[97;5u", b"\x1b[27;5;97~"]),
        ("C-\\", [b"\x1c", b"\x1b[92;5u"]),
        ("C-o", [b"\x0f", b"\x1b[111:79;133u"]),
    ],
)
def test_a_configured_prefix_replaces_the_default(prefix: str, forms: list[bytes]) -> None:
    for form in forms:
        for pieces in _splits(b"ab" + form + b"d"):
            assert _feed(pieces, prefix) == (b"ab", "detach"), pieces
        assert _feed([form + form], prefix) == (form, "") or len(form) > 1
    for pieces in _splits(b"\x1dd\x1b[93;5ud"):
        assert _feed(pieces, prefix) == (b"\x1dd\x1b[93;5ud", ""), pieces


def test_without_a_prefix_every_key_reaches_the_agent() -> None:
    keyboard = Keyboard("none")
    for data in (b"\x1dd", b"\x1d", b"\x1b", b"\x1b[93;5u", b"d"):
        assert keyboard.feed(data) == (data, "") and keyboard.due == 0


@pytest.mark.parametrize(
    "data",
    [b"\x1b[?1;2c", b"\x1b[5;9R", b"\x1b[0n", b"\x1b[I", b"\x1b[<0;1;2M", b"\x1b]11;rgb:0/0/0\a\x1b[c"],
)
def test_a_terminals_own_reports_are_not_keys(data: bytes) -> None:
    assert split_reports(data) == (data, b"")
    assert split_reports(data + data + b"q\x1b[A") == (data + data, b"q\x1b[A")


@pytest.mark.parametrize("data", [b"q", b"\x1b", b"\r", b"\x1b[A", b"\x1b[Ax", b"\x1b[113u"])
def test_typed_keys_are_not_reports(data: bytes) -> None:
    assert split_reports(data) == (b"", data)


def test_the_help_names_the_configured_prefix() -> None:
    assert b"3 unread in your inbox" in help_text("Alice", "C-]", 3)
    assert b"Ctrl-] d " in help_text("Alice", "C-]") and b"Ctrl-A d " in help_text("Alice", "C-a")
