"""Replayed output: queries, notifications and clipboard access are removed, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.shim.replayed import harmless

REMOVED = [
    b"\x1b[c", b"\x1b[0c", b"\x1b[>c", b"\x1b[=0c", b"\x1b[5n", b"\x1b[6n", b"\x1b[?6n", b"\x1b[?996n",
    b"\x1b[?2026$p", b"\x1b[4$p", b"\x1b[1$w", b"\x1b[1;1;1;1;2;2*y", b"\x1b[x",
    b"\x1b[14t", b"\x1b[18t", b"\x1b[21t", b"\x1b[14;2t",
    b"\x1b[>q", b"\x1b[>0q", b"\x1b[?u", b"\x1b[?2;1;0S",
    b"\x1bP$qm\x1b\\", b"\x1bP+q544e\x1b\\",
    b"\x1b]11;?\a", b"\x1b]10;?\x1b\\", b"\x1b]4;1;?\a", b"\x1b]7501;?\x1b\\", b"\x1b]52;c;?\a",
    b"\x1b]52;c;aGk=\a", b"\x1b]9;done\a", b"\x1b]777;notify;a;b\x1b\\",
    b"\x1b_Gi=1,a=q;AAAA\x1b\\", b"\x05",
]  # fmt: skip

KEPT = [
    b"plain\r\n", b"\x1b[1;31m", b"\x1b[2J", b"\x1b[5;7H", b"\x1b[?1049h", b"\x1b[?25l", b"\x1b[2 q",
    b"\x1b]0;a title?\a", b"\x1b]8;;http://a/?b\x1b\\", b"\x1b]11;#123456\a", b"\x1b[2S", b"\x1b[u",
    b"\x1b[8;24;80t", b"\x1b[>1u", b"\a",
]  # fmt: skip


def test_queries_and_notifications_are_removed(subtests: pytest.Subtests) -> None:
    for sequence in REMOVED:
        with subtests.test(repr(sequence)):
            assert harmless(b"a" + sequence + b"b" + sequence) == b"ab"


def test_drawing_is_kept(subtests: pytest.Subtests) -> None:
    for sequence in KEPT:
        with subtests.test(repr(sequence)):
            assert harmless(b"a" + sequence + b"b") == b"a" + sequence + b"b"


@given(st.lists(st.sampled_from(REMOVED + KEPT + [b"text", b"\n"])))
def test_only_the_drawing_is_kept_from_any_mix(pieces: list[bytes]) -> None:
    assert harmless(b"".join(pieces)) == b"".join(piece for piece in pieces if piece not in REMOVED)
