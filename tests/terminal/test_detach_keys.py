"""Ctrl-] and d in every form that a terminal sends, and everything else untouched."""

from __future__ import annotations

import pytest

from relay.shim.detach import ESCAPE_PATIENCE, SPLIT_PATIENCE, DetachKeys

ESCAPES = [b"\x1d", b"\x1b[93;5u", b"\x1b[93;5:1u", b"\x1b[93;133u", b"\x1b[93::93;5u", b"\x1b[27;5;93~"]
DS = [b"d", b"D", b"\x1b[100u", b"\x1b[100;1u", b"\x1b[100;1:1u", b"\x1b[100;129u"]
RELEASES = [b"", b"\x1b[93;5:3u", b"\x1b[93;5:3u\x1b[57442;1:3u"]


def _feed(pieces: list[bytes]) -> tuple[bytes, bool]:
    keys = DetachKeys()
    passed = b""
    for piece in pieces:
        now, detached = keys.feed(piece)
        passed += now
        if detached:
            return passed, True
    return passed + keys.flush(), False


def _splits(data: bytes) -> list[list[bytes]]:
    """`data` in one piece, in two at every place, and byte by byte."""
    halves = [[data[:at], data[at:]] for at in range(1, len(data))]
    return [[data], *halves, [data[at : at + 1] for at in range(len(data))]]


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize("d", DS)
@pytest.mark.parametrize("between", RELEASES)
def test_they_detach(escape: bytes, between: bytes, d: bytes) -> None:
    for pieces in _splits(b"ab\x1b[A" + escape + between + d):
        assert _feed(pieces) == (b"ab\x1b[A", True), pieces


@pytest.mark.parametrize(
    "data",
    [
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
    ],
)
def test_everything_else_passes_untouched(data: bytes) -> None:
    for pieces in _splits(data):
        assert _feed(pieces) == (data, False), pieces


@pytest.mark.parametrize("escape", ESCAPES)
def test_twice_is_sent_once(escape: bytes) -> None:
    for pieces in _splits(b"a" + escape + escape + b"d"):
        assert _feed(pieces) == (b"a" + escape + b"d", False), pieces


def test_what_is_kept_is_kept_for_a_moment() -> None:
    keys = DetachKeys()
    for data, patience in [
        (b"a", None),
        (b"\x1b", SPLIT_PATIENCE),
        (b"[93;5", SPLIT_PATIENCE),
        (b"u", ESCAPE_PATIENCE),
        (b"\x1b[", SPLIT_PATIENCE),
        (b"x", None),
    ]:
        keys.feed(data)
        assert keys.patience == patience
    assert keys.flush() == b""
