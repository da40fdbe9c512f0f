"""Typed text is not said, and what is said afterwards is."""

from __future__ import annotations

import pytest
from hearing import Ears

LINE = "@relay:Bob hi there"
HI = [("Bob", "hi there")]


def test_the_echo_of_a_typed_line_is_not_said() -> None:
    assert Ears().type(f"{LINE}\r").hear(f"{LINE}\r\n").close().told == []


def test_cat_says_what_was_typed_once() -> None:
    assert Ears().type(f"{LINE}\r").hear(f"{LINE}\r\n{LINE}\r\n").told == HI


def test_the_echo_may_come_letter_by_letter_and_after_a_prompt() -> None:
    ears = Ears().hear("you> ")
    for letter in LINE:
        ears.type(letter).hear(letter).wait(0.1)
    ears.type("\r").hear("\r\n").wait(1).hear(f"{LINE}\r\n")
    assert ears.told == HI


@pytest.mark.parametrize("prompt", ["", "> ", "you: "])
def test_a_half_typed_line_is_not_said_though_the_program_waits(prompt: str) -> None:
    ears = Ears().hear(f"hello\r\n{prompt}").prompted()
    for letter in LINE:
        ears.type(letter).hear(letter).prompted().wait(1).prompted()
    assert ears.told == []
    ears.type("\r").hear("\r\n").wait(0.1).hear(f"{LINE}\r\n{prompt}").prompted()
    assert ears.told == HI
    assert ears.texts == [text for text in ("hello", prompt, LINE, prompt) if text]


def test_the_echo_after_a_prompt_that_was_waited_at() -> None:
    ears = Ears().hear("you> ").prompted().type(f"{LINE}\r").hear(f"{LINE}\r\n")
    assert ears.close().told == []


def test_a_typed_form_of_many_lines_is_not_said() -> None:
    typed = "@relay:Bob <<<\none\n>>>\n"
    ears = Ears().type(typed.replace("\n", "\r")).hear(typed.replace("\n", "\r\n"))
    assert ears.close().told == []
    assert ears.texts == []


def test_a_paste_is_typed_too() -> None:
    ears = Ears().type(f"\x1b[200~hello\n{LINE}\x1b[201~\r").hear(f"> hello\r\n{LINE}\r\n{LINE}\r\n")
    assert ears.told == HI


@pytest.mark.parametrize(
    "keys",
    [
        "@relay:Bob hi thxx\x7f\x7fere\r",
        "garbage\x15@relay:Bob hi there\r",
        "@relay:Bob hi thing\x17there\r",
        "stopped\x03@relay:Bob hi there\r",
        "\x1b]11;rgb:1e/1e/1e\x1b\\\x1b[?62;22c\x1b[M !!\x1bOA@relay:Bob hi there\r",
    ],
)
def test_editing_keys_and_answers_of_the_terminal_are_followed(keys: str) -> None:
    assert Ears().type(keys).hear(f"{LINE}\r\n").close().told == []


def test_a_line_that_was_typed_with_echo_off_is_said_when_printed() -> None:
    assert Ears().type(f"{LINE}\r", echo=False).hear(f"\r\n{LINE}\r\n").told == HI


def test_an_echo_that_never_came_swallows_nothing_later() -> None:
    assert Ears().type(f"{LINE}\r").wait(6).hear(f"{LINE}\r\n").told == HI


def test_a_later_echo_gives_up_the_earlier_ones() -> None:
    ears = Ears().type(f"{LINE}\r").type("ls\r").hear("$ ls\r\n", f"{LINE}\r\n")
    assert ears.told == HI


def test_a_directive_that_ends_like_a_typed_line_is_said() -> None:
    assert Ears().type("hi there\r").hear(f"{LINE}\r\n").told == HI
    assert Ears().type("there\r").hear(f"- {LINE}\r\n").told == HI


def test_a_command_that_prints_a_directive_has_said_it() -> None:
    ears = Ears().hear("$ ").prompted().type(f"echo {LINE}\r").hear(f"echo {LINE}\r\n{LINE}\r\n$ ")
    assert ears.told == HI


def test_a_typed_line_in_a_program_that_draws() -> None:
    ears = Ears(60, 12).hear("\x1b[2J\x1b[H").wait(0.1)
    for at in range(1, len(LINE) + 1):
        ears.type(LINE[at - 1]).hear(f"\x1b[12;1H> {LINE[:at]}").wait(0.05)
    ears.wait(4)  # a draft in the input box does not count, however long it stays
    ears.type("\r").hear(f"\x1b[12;1H\x1b[K> \x1b[1;1H> {LINE}\x1b[12;3H").wait(0.5)
    ears.hear(f"\x1b[3;1H● {LINE}\x1b[12;3H").wait()
    assert ears.told == HI


def test_a_pasted_directive_in_the_transcript_of_a_program_that_draws() -> None:
    ears = Ears(60, 12).hear("\x1b[2J\x1b[H").type(f"\x1b[200~look:\n{LINE}\x1b[201~\r")
    ears.hear(f"\x1b[1;1H> look:\x1b[2;1H  {LINE}\x1b[12;1H> ").wait()
    assert ears.told == []


def test_a_typed_line_that_a_drawing_program_wraps() -> None:
    typed = "please tell the others about @relay:Bob hi there and nothing else"
    ears = Ears(40, 12).hear("\x1b[2J\x1b[H").type(f"{typed}\r")
    ears.hear(f"\x1b[1;1H> {typed[:29]}\x1b[2;1H  {typed[29:]}\x1b[12;1H> ").wait()
    assert ears.told == []
