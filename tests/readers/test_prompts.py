"""S9: a directive after a prompt sign counts whether or not the reader saw the program wait there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.rig import Rig
from relay.directives.grammar import Grammar
from relay.directives.pipeline import OutputPipeline
from relay.readers.auto import AutoReader, Kind


def directives_of(prompt: str, waits: list[bool]) -> list[str]:
    """Return the directives of a program that prints `prompt` before each; `waits`: is its wait noticed?"""
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
    assert directives_of(prompt, waits) == [f"number {number}" for number in range(len(waits))]


@pytest.mark.parametrize("line", ["> @relay:Bob quoted", "he said @relay:Bob hi", "12> @relay:Bob hi"])
def test_a_quote_is_not_a_directive_in_a_program_with_another_prompt(line: str) -> None:
    pipeline = OutputPipeline(AutoReader(80, 24), Grammar(lambda _: True))
    found = [*pipeline.output(b"Name? ", 0.0).directives, *pipeline.waiting(0.1).directives]
    found += pipeline.output(f"\r\n{line}\r\n".encode(), 1.0).directives
    assert not found


def test_a_directive_after_a_known_prompt_counts_on_a_screen() -> None:
    """S9: the program reads lines, and has moved the cursor once."""
    rig = Rig().write("\x1b[2J\x1b[HWelcome\r\n> ").wait().prompted()
    assert rig.reader.kind == "screen"
    rig.write("@relay:Bob one\r\n").wait().write("> @relay:Bob two\r\n").wait()
    rig.write("> ").prompted().write("@relay:Bob three\r\n> @relay:Bob four\r\n> ").wait()
    assert rig.found == [("Bob", number) for number in ("one", "two", "three", "four")]
    assert rig.passed_over == []


def test_the_sign_of_an_input_box_is_not_a_prompt() -> None:
    """The transcript repeats what was typed into the box."""
    rig = Rig().write("\x1b[2J\x1b[8;1H----\x1b[9;1H> \x1b[10;1H----\x1b[9;3H").wait().prompted()
    rig.write("\x1b[2;1H> @relay:Bob typed\x1b[9;3H").wait().prompted()
    assert rig.found == [] and rig.passed_over == ["> @relay:Bob typed"]


@pytest.mark.parametrize("kind", ["lines", "screen"])
def test_a_directive_after_an_unknown_sign_is_passed_over_and_reported(kind: Kind) -> None:
    rig = Rig(kind=kind).write("> @relay:Bob one\r\n│  @relay:Bob two\r\n> @nobody:Bob three\r\n").wait()
    rig.write("```\r\n> @relay:Bob code\r\n```\r\n\\@relay:Bob literal\r\n> no @relay:Bob word\r\n").wait()
    assert rig.found == [] and rig.passed_over == ["> @relay:Bob one", "│  @relay:Bob two"]


@pytest.mark.parametrize("half", ["@", "@rel", "@relay:Bob good mor", "> @relay:Bob good mor"])
def test_a_silent_program_may_continue_a_directive(half: str) -> None:
    """To the kernel, waiting for a network looks like waiting for input."""
    rig = Rig(kind="lines").write("> ").prompted().write("\r\n")
    rig.write(half).wait().prompted(sure=False)
    rig.write("> @relay:Bob good morning"[len(half) + 2 * (half[0] == "@") :] + "\r\n")
    assert rig.found == [("Bob", "good morning")]


def test_a_form_ends_though_its_end_starts_like_a_prompt() -> None:
    rig = (
        Rig(kind="lines")
        .write(">")
        .prompted()
        .write("\r\n@relay:Bob <<<\r\none\r\n>>>\r\n@relay:Bob two\r\n")
    )
    assert rig.found == [("Bob", "one"), ("Bob", "two")]


@pytest.mark.parametrize("kind", ["lines", "screen"])
@pytest.mark.parametrize("echoed", [True, False])
def test_typed_text_is_not_a_directive_after_the_same_prompt(kind: Kind, echoed: bool) -> None:
    """This holds for the echo of typed text, and for a program that prints it again."""
    rig = Rig(kind=kind).write("> ").prompted()
    rig.type("hi\r> @relay:Bob typed\rbye\r", echo=echoed)
    if echoed:
        rig.write("hi\r\n> @relay:Bob typed\r\nbye\r\n").wait()
    rig.write("> ").wait(60).prompted().write("> @relay:Bob typed\r\n> ").wait().prompted()
    assert rig.found == [] and rig.passed_over
    assert rig.write("> @relay:Bob said\r\n").wait().found == [("Bob", "said")]
