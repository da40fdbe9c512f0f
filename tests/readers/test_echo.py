"""The echo of typed text is ignored, and what the program prints afterwards is read."""

from __future__ import annotations

import pytest

from readers.rig import Rig

LINE = "@relay:Bob hi there"
HI = [("Bob", "hi there")]


def test_the_echo_of_a_typed_line_is_ignored() -> None:
    assert Rig().type(f"{LINE}\r").write(f"{LINE}\r\n").close().found == []


def test_a_line_that_cat_repeats_is_read_once() -> None:
    assert Rig().type(f"{LINE}\r").write(f"{LINE}\r\n{LINE}\r\n").found == HI


def test_an_echo_letter_by_letter_after_a_prompt_is_ignored() -> None:
    rig = Rig().write("you> ")
    for letter in LINE:
        rig.type(letter).write(letter).wait(0.1)
    rig.type("\r").write("\r\n").wait(1).write(f"{LINE}\r\n")
    assert rig.found == HI


@pytest.mark.parametrize("prompt", ["", "> ", "you: "])
def test_a_half_typed_line_is_ignored_though_the_program_waits(prompt: str) -> None:
    rig = Rig().write(f"hello\r\n{prompt}").prompted()
    for letter in LINE:
        rig.type(letter).write(letter).prompted().wait(1).prompted()
    assert rig.found == []
    rig.type("\r").write("\r\n").wait(0.1).write(f"{LINE}\r\n{prompt}").prompted()
    assert rig.found == HI
    assert rig.texts == [text for text in ("hello", prompt, LINE, prompt) if text]


def test_the_echo_after_a_prompt_is_ignored() -> None:
    rig = Rig().write("you> ").prompted().type(f"{LINE}\r").write(f"{LINE}\r\n")
    assert rig.close().found == []


def test_a_typed_form_is_ignored() -> None:
    typed = "@relay:Bob <<<\none\n>>>\n"
    rig = Rig().type(typed.replace("\n", "\r")).write(typed.replace("\n", "\r\n"))
    assert rig.close().found == []
    assert rig.texts == []


def test_the_echo_of_a_paste_is_ignored() -> None:
    rig = Rig().type(f"\x1b[200~hello\n{LINE}\x1b[201~\r").write(f"> hello\r\n{LINE}\r\n{LINE}\r\n")
    assert rig.found == HI


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
def test_an_echo_edited_by_keys_or_mixed_with_terminal_replies_is_ignored(keys: str) -> None:
    assert Rig().type(keys).write(f"{LINE}\r\n").close().found == []


def test_a_line_typed_with_echo_off_is_read_when_printed() -> None:
    assert Rig().type(f"{LINE}\r", echo=False).write(f"\r\n{LINE}\r\n").found == HI


def test_a_missing_echo_does_not_swallow_later_output() -> None:
    assert Rig().type(f"{LINE}\r").wait(6).write(f"{LINE}\r\n").found == HI


def test_a_later_echo_discards_earlier_ones() -> None:
    rig = Rig().type(f"{LINE}\r").type("ls\r").write("$ ls\r\n", f"{LINE}\r\n")
    assert rig.found == HI


def test_a_directive_that_ends_like_a_typed_line_is_read() -> None:
    assert Rig().type("hi there\r").write(f"{LINE}\r\n").found == HI
    assert Rig().type("there\r").write(f"- {LINE}\r\n").found == HI


def test_a_directive_printed_by_a_command_is_read() -> None:
    rig = Rig().write("$ ").prompted().type(f"echo {LINE}\r").write(f"echo {LINE}\r\n{LINE}\r\n$ ")
    assert rig.found == HI


def test_a_line_typed_into_a_drawing_program_is_ignored() -> None:
    rig = Rig(60, 12).write("\x1b[2J\x1b[H").wait(0.1)
    for at in range(1, len(LINE) + 1):
        rig.type(LINE[at - 1]).write(f"\x1b[12;1H> {LINE[:at]}").wait(0.05)
    rig.wait(4)  # a draft in the input box is ignored, however long it stays
    rig.type("\r").write(f"\x1b[12;1H\x1b[K> \x1b[1;1H> {LINE}\x1b[12;3H").wait(0.5)
    rig.write(f"\x1b[3;1H● {LINE}\x1b[12;3H").wait()
    assert rig.found == HI


def test_a_pasted_directive_in_a_drawn_transcript_is_ignored() -> None:
    rig = Rig(60, 12).write("\x1b[2J\x1b[H").type(f"\x1b[200~look:\n{LINE}\x1b[201~\r")
    rig.write(f"\x1b[1;1H> look:\x1b[2;1H  {LINE}\x1b[12;1H> ").wait()
    assert rig.found == []


def test_a_typed_line_wrapped_by_a_drawing_program_is_ignored() -> None:
    typed = "please tell the others about @relay:Bob hi there and nothing else"
    rig = Rig(40, 12).write("\x1b[2J\x1b[H").type(f"{typed}\r")
    rig.write(f"\x1b[1;1H> {typed[:29]}\x1b[2;1H  {typed[29:]}\x1b[12;1H> ").wait()
    assert rig.found == []
