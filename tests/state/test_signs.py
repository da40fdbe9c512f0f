"""Signs of a dialog and of work, row by row, and the inputs next to them."""

from __future__ import annotations

import re

import pytest

from relay.agents.profile import InputStyle
from relay.state.input_box import find_input
from relay.state.signs import NEAR, ROWS, find_sign

RULE = "─" * 40
STYLE = InputStyle(glyphs="❯>", placeholders=(re.compile("^Explain this"),))


def _state(*rows: str, bullets: str = "●", loose: bool = False, idle: bool = False) -> str:
    found = find_sign(rows, bullets=bullets, loose=loose, idle=idle)
    return "" if found is None else found.state


DIALOG_ROWS = [
    "❯ 1. Yes",
    "│ › 2) No, keep planning        │",
    "  ❯ 1. Yes                                █",
    " Overwrite fence.py? [y/N]",
    "Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]:",
    "  (yes/no)?",
    "│  ● Yes / ○ No",
    "Esc to cancel · Tab to amend",
    "esc: dismiss",
    "Enter to select · ↑/↓ to navigate",
    "↑↓ navigate • ⏎ select",
    "Press any key to continue",
    "Use arrow-keys. Return to submit.",
    "△ Permission required",
    "  Allow once   Allow always   Reject",
    "   <Yes>      <No>",
    "⠏ Waiting for user confirmation...",
    "[sudo] password for bob:",
]


def test_a_row_of_a_dialog_means_prompting(subtests: pytest.Subtests) -> None:
    for row in DIALOG_ROWS:
        with subtests.test(repr(row)):
            assert _state(row) == "prompting"
            assert _state(row, *["said later"] * ROWS) == ""


@pytest.mark.parametrize(
    "row",
    [
        "✻ Mending… (12s · ↓ 1.2k tokens)",
        "· Retrying…",
        " ⠙ Thinking... (esc to cancel, 3s)",
        "── ⠴ Working ─────────────────────────",
        "• Working (4s • esc to interrupt)",
        "  ⏵⏵ auto mode on (shift+tab to cycle) · esc to interrupt",
        "ctrl+c to stop",
    ],
)
def test_a_row_of_work_means_working(row: str) -> None:
    assert _state(row) == "working"
    assert _state(row, "  ⎿  ☐ one", *["     ☐ another"] * 8) == "working"
    assert _state(row, "● Done.") == ""
    assert _state(row, idle=True) == ""


ORDINARY_ROWS = [
    "Do you want me to paint it?",
    "● 1. Paint it",
    "  2. Nail it",
    "✻ Baked for 6s · done 4:06 PM",
    "  ? for shortcuts",
    "escape interrupt · ctrl+c/ctrl+d clear/exit · / commands",
    "Press ctrl+o to show full startup help",
    "  Press Esc again to clear.",
    "  ! for shell mode        esc esc to clear input",
    "ctrl+p commands",
    "Yes, I have mended it; no nail is left.",
    "",
]


def test_an_ordinary_row_is_not_a_sign(subtests: pytest.Subtests) -> None:
    for row in ORDINARY_ROWS:
        with subtests.test(repr(row)):
            assert _state(row) == ""


def test_options_are_a_dialog_if_a_mark_points_at_one() -> None:
    """Other agents use the same mark as a bullet, before a list that they wrote."""
    assert _state("● 1. Allow once", "  2. Allow always", bullets="✦") == "prompting"
    assert _state("● 1. one", "  2. two", bullets="●") == ""
    assert _state("> 1. quoted") == _state("> 1. quoted", "> 2. quoted") == ""
    assert _state("Do you want to?", " 1. Yes", " 2. No") == "prompting"


def test_an_unnumbered_list_is_a_dialog_only_in_an_unknown_program() -> None:
    rows = ("Which one?", "❯ red", "  blue")
    assert _state(*rows, loose=True) == "prompting"
    assert _state(*rows) == ""
    assert _state("said", "❯ red", "  blue", loose=True) == ""  # typed text, in two rows


def test_text_below_a_dialog_makes_it_an_older_one() -> None:
    last = find_sign(["Proceed? [y/N]", *["said later"] * NEAR])
    older = find_sign(["Proceed? [y/N]", *["said later"] * (NEAR + 1)])
    assert last is not None and older is not None
    assert last.last and not older.last


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (
            ("╭──────────────╮", "│ > dear Bob   │", "│   how are    │", "╰──────────────╯", " keys"),
            "dear Bob\n   how are",
        ),
        (("┌──────────────┐", "│ ❯            │", "└──────────────┘"), ""),
        ((RULE, "❯ dear Bob", "", "  how are", RULE, "  keys", "  and more"), "dear Bob\n\n  how are"),
        ((f"── Bob {RULE}", "❯", RULE), ""),
        (("▄" * 40, " > dear", "▀" * 40, " ~/project"), "dear"),
        (("said", "❯", "  keys"), ""),
        (("said", "❯ dear", "  Bob", "  and all", "  of you", "", "  model", "  keys"), "dear"),
        ((RULE, ">   Type your message or @path/to/file", RULE), ""),
        ((RULE, "> Explain this codebase", RULE), ""),
        ((RULE, "> Send a message to Bob", RULE), "Send a message to Bob"),
    ],
)
def test_an_input_is_found_in_every_form(rows: tuple[str, ...], text: str) -> None:
    found = find_input(rows, STYLE)
    assert found is not None and found.text == text


@pytest.mark.parametrize(
    "rows",
    [
        (RULE, "a paragraph between two rules", RULE),
        (RULE, "❯ 1. Yes", "  2. No", RULE),
        ("❯ 1. Yes", "  2. No"),
        ("❯ hello", "● Hello.", "  It goes on"),
        ("Which one?", "❯ red", "  blue"),
        ("❯", *[f"row {number}" for number in range(20)]),
        ("│ > said │",),
        ("> 1. quoted",),
        (),
    ],
)
def test_other_rows_are_not_an_input(rows: tuple[str, ...]) -> None:
    assert find_input(rows, STYLE) is None


def test_the_cursor_outweighs_the_wording() -> None:
    rows = (RULE, "> Mend the fence, too.", RULE)
    found = [find_input(rows, STYLE, cursor) for cursor in ((2, 1), (22, 1), (0, 9), None)]
    assert [each.text if each else None for each in found] == ["", *["Mend the fence, too."] * 3]
    hint = find_input((RULE, ">   Type your message", RULE), STYLE, (9, 1))
    assert hint is not None and hint.text == "Type your message"


def test_a_frame_with_the_cursor_is_the_input_whatever_is_below_it() -> None:
    """Gemini leaves the footers of narrower screens below its input (F8)."""
    rows = ["an answer", RULE, "> ", RULE, *(f" a footer {n}" for n in range(20))]
    found = [find_input(rows, STYLE, cursor) for cursor in ((2, 2), (2, 0), (2, 9), None)]
    assert [None if box is None else (box.top, box.bottom) for box in found] == [(1, 3), None, None, None]


def test_an_interrupt_key_in_a_list_of_keys_is_not_work() -> None:
    """pi 0.57.1 starts with such a list, right above its input."""
    keys = [
        "ctrl+c to clear",
        "ctrl+c twice to exit",
        "ctrl+d to exit (empty)",
        "shift+tab to cycle thinking",
    ]
    rows = [f" {key}" for key in ("escape to interrupt", *keys)]
    assert _state(*rows, RULE, RULE) == ""
    assert _state(*rows[:4], RULE, RULE) == "working", "the footer of work may list some keys, too"
    assert _state(*rows, " escape to interrupt", RULE) == "working"
