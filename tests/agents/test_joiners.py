"""Joiners that Gemini omits from its record come from what it has drawn (A10)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.agents.events import TextRead
from relay.agents.joiners import JOINER, DrawnJoiners
from relay.agents.transcript_lines import Said
from relay.directives.events import DirectiveRead
from relay.eventbus import EventBus, handles
from relay.features.transcript_listener import TranscriptListener
from relay.place import Place
from relay.storage.journal import Journal
from relay.terminal.events import OutputRead

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
CODER = "\U0001f9d1\u200d\U0001f4bb"


def without(text: str) -> str:
    return text.replace(JOINER, "")


@given(st.lists(st.sampled_from([FAMILY, CODER, "a", "漢字", " ", "\n", "\x1b[1m"])), st.integers(1, 9))
def test_a_text_is_restored_whatever_the_size_of_the_chunks(pieces: list[str], size: int) -> None:
    text = "".join(pieces) + "\n"
    drawn, data = DrawnJoiners(), text.encode()
    for at in range(0, len(data), size):
        drawn.drawn(data[at : at + size])
    for word in text.split():
        assert drawn.restored(without(word)) in (word, word.strip(JOINER))


@pytest.mark.parametrize("drawn", [f"{FAMILY} hi", f"{FAMILY}", f"\x1b[1m{without(FAMILY)}\x1b[0m "])
def test_nothing_is_joined_that_was_not_drawn_so(drawn: str) -> None:
    joiners = DrawnJoiners()
    joiners.drawn(drawn.encode())
    joined = joiners.restored(f"x {without(FAMILY)} {without(CODER)}")
    assert joined == f"x {FAMILY if ' hi' in drawn else without(FAMILY)} {without(CODER)}"


def test_an_endless_word_and_many_words_are_bounded() -> None:
    joiners = DrawnJoiners()
    for number in range(3000):
        joiners.drawn(f"{chr(0x4E00 + number)}{CODER} ".encode())
    for _ in range(100):
        joiners.drawn("漢".encode() * 30_000)
    last = chr(0x4E00 + 2999)
    assert joiners.restored(f"{last}{without(CODER)}") == f"{last}{CODER}"
    assert len(joiners._words) == 500 and len(joiners._unfinished) == 4096


class Heard:
    """The bodies of the directives that were read."""

    def __init__(self) -> None:
        self.bodies: list[str] = []

    @handles(DirectiveRead)
    def read(self, event: DirectiveRead) -> None:
        self.bodies.append(event.directive.body)


def test_a_directive_in_the_record_has_the_joiners_that_were_drawn(tmp_path: Path) -> None:
    async def main() -> list[str]:
        bus, heard = EventBus(), Heard()
        listener = TranscriptListener(
            bus,
            Journal(tmp_path / "journal", "id", "Ann"),
            knows=lambda namespace: True,
            meant=lambda namespace: "",
            prefix="@",
            subagents=False,
            joiners=DrawnJoiners(),
        )
        for each in (listener, heard):
            bus.add(each)
        bus.publish(OutputRead(f"\x1b[1m{FAMILY}\x1b[0m hi".encode(), Place("terminal", 1), 1))
        bus.publish(TextRead((Said(f"@relay:you {without(FAMILY)} hi", "1", place=9),)))
        return heard.bodies

    assert asyncio.run(main()) == [f"{FAMILY} hi"]
