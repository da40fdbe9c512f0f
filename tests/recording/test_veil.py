"""The veil: no secret gets into a recording, however it comes, and the rest stays as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay import recording
from relay.recording.page import Page
from relay.recording.veil import HOLD, MAX_HOLD, Event, Veil
from relay.redact import Redactor

# Put together from parts: this file holds no secret.
TOKEN = "gh" + "p_" + "a7Qz" * 9
KEY = "sk-" + "ant-api03-" + "Zb9_x-" * 15
PASSWORD = "hun" + "ter2-deep"
FILLER = "An ordinary line of a log, with 1234 tokens used.\r\n"
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


def through(*pieces: str, columns: int = 80, quiet: bool = False, known: tuple[str, ...] = ()) -> str:
    """What is written of `pieces`, each let go as far as possible before the next one comes."""
    veil = Veil(Redactor(known), columns)
    written: list[Event] = []
    for number, piece in enumerate(pieces):
        veil.put(Event(number, "o", piece))
        written += veil.take(quiet=quiet)
    written += veil.take(all=True)
    assert veil.held == 0
    assert [event.at for event in written] == sorted(event.at for event in written)
    return "".join(event.data for event in written)


@pytest.mark.parametrize("size", [1, 2, 7, 100, 511, 4096])
@pytest.mark.parametrize("quiet", [False, True], ids=["", "quiet"])
def test_secrets_in_pieces_of_any_size(size: int, quiet: bool) -> None:
    """R44: also typed character by character, with a long pause after each."""
    text = f"{FILLER * 9}$ export GITHUB={TOKEN}\r\n{FILLER}password: {PASSWORD}\r\n{FILLER * 20}{KEY}\r\n$ "
    written = through(*(text[i : i + size] for i in range(0, len(text), size)), quiet=quiet)
    assert len(written) == len(text)
    for secret in (TOKEN, PASSWORD, KEY):
        text = text.replace(secret, "*" * len(secret))
    assert written == text


def test_colours_inside_a_secret_stay() -> None:
    """R44"""
    coloured = "".join(f"\x1b[3{n % 8}m{c}\x1b[0m" for n, c in enumerate(TOKEN))
    written = through(f"\x1b]0;title\x07{coloured}\x1b[K\r\nend")
    assert SEQUENCE.sub("", written) == "*" * len(TOKEN) + "\r\nend"
    assert SEQUENCE.findall(written) == ["\x1b]0;title\x07", *SEQUENCE.findall(coloured), "\x1b[K"]


@pytest.mark.parametrize("at", [15, 20, 30, 39])
def test_a_secret_that_the_program_has_wrapped(at: int) -> None:
    """R44: plainly, in a frame, by the cursor's position, and as a shell's line editor does."""
    head, tail = TOKEN[:at], TOKEN[at:]
    indent = " " * (40 - at)
    for row in (
        f"{indent}{head}\r\n{tail} end",
        f"│{indent}{head} │\r\n│ {tail} end │",
        f"\x1b[5;{41 - at}H{head}\x1b[6;1H{tail} end",
        f"{indent}{head} \r{tail} end",
    ):
        written = through(row, columns=44)
        assert SEQUENCE.sub("", written) == SEQUENCE.sub("", row).replace(head, "*" * at).replace(
            tail, "*" * len(tail)
        )
    apart = f"\x1b[1;1H{TOKEN}\x1b[9;1Hnext"  # not one under the other
    assert through(apart, columns=200).endswith("*\x1b[9;1Hnext")
    short = f"{head}\r\n{tail}"  # not at the end of a row: two things
    assert through(short, columns=200).endswith(tail)


def test_known_values_are_covered_wherever_they_come() -> None:
    """R44: what stood behind `password=` once, and what the agent's environment holds."""
    written = through(
        f"DB_PASSWORD={PASSWORD}\r\n", FILLER * 20, f"it is {PASSWORD}.", known=("s3same opens",)
    )
    assert PASSWORD not in written and written.endswith(f"it is {'*' * len(PASSWORD)}.")
    assert through("say s3same opens, now", known=("s3same opens",)) == "say ****** *****, now"
    assert through("it begins with s3same op", known=("s3same opens",)) == "it begins with ****** **"
    cut = through(f"{KEY}\r\n", FILLER * 20, f"key {KEY[: len(KEY) * 3 // 4]} ...")
    assert cut.endswith(f"key {'*' * (len(KEY) * 3 // 4)} ...")


def test_private_keys_that_come_line_by_line() -> None:
    """R44"""
    first, last = "-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"
    body = [f"{n:02}" + "b3BlbnNzaC1rZXktdjEA" * 3 for n in range(40)]
    for quiet in (False, True):
        written = through(*(f"{line}\r\n" for line in (FILLER, first, *body, last, FILLER)), quiet=quiet)
        assert first in written and last in written and written.endswith(FILLER + "\r\n")
        assert not any(line[:20] in written for line in body)
    prose = f"It begins with {first} and so on.\r\n" + FILLER * 200
    veil = Veil(Redactor(), 80)
    veil.put(Event(0, "o", prose))
    veil.take()
    assert veil.held <= HOLD


def test_titles_links_and_the_clipboard() -> None:
    """R44: what is not on the screen is looked at, too."""
    link = f"\x1b]8;;https://x.example.org/?token={TOKEN}\x1b\\here\x1b]8;;\x1b\\"
    written = through(f"\x1b]0;{TOKEN}\x07{link}\x1b]52;c;aGVsbG8gd29ybGQ=\x07end")
    assert written == f"\x1b]0;{'*' * len(TOKEN)}\x07{link.replace(TOKEN, '*' * len(TOKEN))}end"


def test_other_events_keep_their_place() -> None:
    veil = Veil(Redactor(), 80)
    events = [Event(1, "o", "a" * 600), Event(2, "r", "100x30"), Event(3, "o", "b" * 100), Event(4, "m", "x")]
    for event in events:
        veil.put(event)
    first = veil.take()
    assert [event.kind for event in first] == ["o"] and veil.held == 700 - len(first[0].data)
    assert [each for each in (*first, *veil.take(all=True)) if each.kind != "o"] == [events[1], events[3]]


def test_what_is_held_is_bounded() -> None:
    for endless in (
        "\x1b]0;",
        "\x1b[38;5;1m",
        "-----BEGIN PRIVATE KEY-----\r\n",
        TOKEN,
        "\x1bP",
        "\x1b",
        "│",
    ):
        veil = Veil(Redactor(), 80)
        for at in range(10):
            veil.put(Event(at, "o", endless * 3000))
            veil.take()
            assert veil.held <= MAX_HOLD


PARTS = st.sampled_from(
    [
        *(
            "\x1b[1m",
            "\x1b[5;7H",
            "\x1b]0;t\x07",
            "\x1b",
            "\x1b[",
            "\x1bP",
            "\r\n",
            "\r",
            " ",
            "│",
            "日本",
            "\udcff",
        ),
        *(
            "a1 ",
            "h",
            "\\n",
            "password=",
            "token: ",
            "://u:",
            "@h ",
            "-----BEGIN PRIVATE KEY-----",
            "-----END ",
        ),
        *(TOKEN, KEY[:30], "x" * 90 + "/"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(PARTS, max_size=12).map("".join), max_size=8), st.booleans())
def test_nothing_but_secrets_changes(pieces: list[str], quiet: bool) -> None:
    """R44: the length stays, each character stays or is covered, and one reads no whole token."""
    text = "".join(pieces)
    written = through(*pieces, quiet=quiet)
    assert len(written) == len(text)
    assert all(a == b or b == "*" for a, b in zip(text, written, strict=True))
    assert TOKEN not in Page.of_terminal(written).text


RECORDINGS = sorted((Path(__file__).parent.parent / "recordings").rglob("*.cast"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_what_real_agents_draw_stays_as_it_is(path: Path) -> None:
    """R44: recordings of real agents, in which there is no secret."""
    read = recording.read(path)
    drawn = [event.data for event in read.events if event.kind == "o"]
    assert through(*drawn, columns=read.columns) == "".join(drawn)


def test_hostile_output_is_taken_in_linear_time() -> None:
    """R44: what takes quadratic time does not end within the test's time."""
    for hostile in (
        "a",
        "│",
        " ",
        "\x1b",
        "\x1b]",
        "\x1b[",
        "\r",
        "password=",
        "://x:",
        "eyJ",
        "\x1b[1;1H",
        "sk-ant-",
    ):
        veil = Veil(Redactor(), 80)
        veil.put(Event(0, "o", hostile * ((1 << 18) // len(hostile))))
        veil.take(quiet=True)
