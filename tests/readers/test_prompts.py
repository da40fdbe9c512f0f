"""S9: a directive in the row of a prompt sign counts whether or not the reader saw the program wait there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.directives.grammar import Grammar
from relay.directives.pipeline import OutputPipeline
from relay.readers.auto import AutoReader


def heard(prompt: str, waits: list[bool]) -> list[str]:
    """The directives of a program that prints `prompt` before each, and is seen to wait or not."""
    pipeline = OutputPipeline(AutoReader(80, 24), Grammar(lambda _: True))
    found, now = [], 0.0
    for number, seen in enumerate(waits):
        now += 1
        found += pipeline.output(prompt.encode(), now).directives
        if seen:
            found += pipeline.waiting(now).directives
        found += pipeline.output(f"@relay:Bob number {number}\r\n".encode(), now).directives
    return [directive.body for directive in [*found, *pipeline.close(now).directives]]


@given(st.sampled_from(["> ", "$ ", ">>> ", "\u276f "]), st.lists(st.booleans(), max_size=30))
def test_every_directive_counts_once_the_prompt_is_known(prompt: str, waits: list[bool]) -> None:
    waits = [True, *waits]
    assert heard(prompt, waits) == [f"number {number}" for number in range(len(waits))]


@pytest.mark.parametrize("line", ["> @relay:Bob quoted", "he said @relay:Bob hi", "12> @relay:Bob hi"])
def test_a_quote_of_a_program_without_that_prompt_is_none(line: str) -> None:
    pipeline = OutputPipeline(AutoReader(80, 24), Grammar(lambda _: True))
    found = [*pipeline.output(b"Name? ", 0.0).directives, *pipeline.waiting(0.1).directives]
    found += pipeline.output(f"\r\n{line}\r\n".encode(), 1.0).directives
    assert not found
