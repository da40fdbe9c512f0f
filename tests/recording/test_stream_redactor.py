"""The stream redactor: no secret gets into a recording, however it arrives; everything else is unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relay.recording.asciicast import Cast, CastEvent
from relay.recording.grid import Grid
from relay.recording.stream_redactor import GROWTH, MAX_HOLD, StreamRedactor
from relay.redaction import Redactor, Secret
from support import many

# Assembled from parts, so this file contains no secret.
TOKEN = "gh" + "p_" + "a7Qz" * 9
KEY = "sk-" + "ant-api03-" + "Zb9_x-" * 15
PASSWORD = "hun" + "ter2-deep"
FILLER = "An ordinary line of a log, with 1234 tokens used.\r\n"
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


def through(
    *pieces: str, columns: int = 80, rows: int = 24, pause: float = 0.1, known: tuple[str, ...] = ()
) -> str:
    """Return what is written for `pieces`, each flushed as far as possible before the next one."""
    stream = StreamRedactor(Redactor(known), columns, rows)
    written: list[CastEvent] = []
    now = 0.0
    for piece in pieces:
        stream.put(CastEvent(now, "o", piece))
        now += pause
        written += stream.take(now)
    written += stream.take(now, all=True)
    assert stream.held == 0
    assert [event.time for event in written] == sorted(event.time for event in written)
    return "".join(event.data for event in written)


@pytest.mark.parametrize("size", [1, 2, 7, 100, 511, 4096])
@pytest.mark.parametrize("pause", [0.1, GROWTH * 2], ids=["", "slowly"])
def test_secrets_in_pieces_of_any_size_are_redacted(size: int, pause: float) -> None:
    """R44: the pieces may be single typed characters, with a long pause after each."""
    text = f"{FILLER * 3}$ export GITHUB={TOKEN}\r\n{FILLER}password: {PASSWORD}\r\n{FILLER * 6}{KEY}\r\n$ "
    written = through(*(text[i : i + size] for i in range(0, len(text), size)), pause=pause)
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
def test_a_wrapped_secret_is_redacted(at: int) -> None:
    """R44: wrapped plainly, in a frame, by cursor positions, or as by a shell's line editor."""
    head, tail = TOKEN[:at], TOKEN[at:]
    indent = " " * (40 - at)
    for row, columns in (
        (f"{indent}{head}\r\n{tail} end", 44),
        (f"│{indent}{head} │\r\n│ {tail} end │", 44),
        (f"│{indent}{head} │\r\n│ {tail} end │", 200),
        (f"\x1b[5;{41 - at}H{head}\x1b[6;1H{tail} end", 44),
        (f"{indent}{head} \r{tail} end", 40),
    ):
        written = through(row, columns=columns)
        assert SEQUENCE.sub("", written) == SEQUENCE.sub("", row).replace(head, "*" * at).replace(
            tail, "*" * len(tail)
        )
    apart = f"\x1b[1;1H{TOKEN}\x1b[9;1Hnext"  # not adjacent rows
    assert through(apart, columns=200).endswith("*\x1b[9;1Hnext")
    short = f"{head}\r\n{tail}"  # not at the end of a row: two separate texts
    assert through(short, columns=200).endswith(tail)


def test_known_values_are_redacted_everywhere() -> None:
    """R44: a value that once followed `password=`, and those in the agent's environment."""
    written = through(
        f"DB_PASSWORD={PASSWORD}\r\n", FILLER * 20, f"it is {PASSWORD}.", known=("s3same opens",)
    )
    assert PASSWORD not in written and written.endswith(f"it is {'*' * len(PASSWORD)}.")
    assert through("say s3same opens, now", known=("s3same opens",)) == "say ****** *****, now"
    assert through("it begins with s3same op", known=("s3same opens",)) == "it begins with ****** **"
    cut = through(f"{KEY}\r\n", FILLER * 20, f"key {KEY[: len(KEY) * 3 // 4]} ...")
    assert cut.endswith(f"key {'*' * (len(KEY) * 3 // 4)} ...")


def test_private_keys_that_arrive_line_by_line_are_redacted() -> None:
    """R44"""
    first, last = "-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"
    body = [f"{n:02}" + "b3BlbnNzaC1rZXktdjEA" * 3 for n in range(40)]
    for pause in (0.1, GROWTH * 2):
        written = through(*(f"{line}\r\n" for line in (FILLER, first, *body, last, FILLER)), pause=pause)
        assert first in written and last in written and written.endswith(FILLER + "\r\n")
        assert not any(line[:20] in written for line in body)
    prose = f"It begins with {first} and so on.\r\n" + FILLER * 200
    stream = StreamRedactor(Redactor(), 80)
    stream.put(CastEvent(0, "o", prose))
    stream.take(0.1)
    assert stream.held == 0


def test_titles_links_and_the_clipboard_are_redacted() -> None:
    """R44: text that is not on the screen is searched, too."""
    link = f"\x1b]8;;https://x.example.org/?token={TOKEN}\x1b\\here\x1b]8;;\x1b\\"
    written = through(f"\x1b]0;{TOKEN}\x07{link}\x1b]52;c;aGVsbG8gd29ybGQ=\x07end")
    assert written == f"\x1b]0;{'*' * len(TOKEN)}\x07{link.replace(TOKEN, '*' * len(TOKEN))}end"


def test_other_events_keep_their_place() -> None:
    stream = StreamRedactor(Redactor(), 80)
    events = [
        CastEvent(1, "o", "so a"),
        CastEvent(2, "r", "100x30"),
        CastEvent(3, "o", "b"),
        CastEvent(4, "m", "x"),
    ]
    for event in events:
        stream.put(event)
    first = stream.take(4.0)
    assert first == [CastEvent(1, "o", "so ")] and stream.held == 2
    assert stream.take(4.0, all=True) == [CastEvent(1, "o", "a"), *events[1:]]


def test_only_a_potential_secret_is_held_back() -> None:
    """R43: everything else is on disk within a second."""
    stream = StreamRedactor(Redactor(), 80)
    stream.put(CastEvent(0.0, "o", f"{FILLER}A sentence."))
    assert "".join(event.data for event in stream.take(0.1)) == f"{FILLER}A "
    stream.put(CastEvent(1.0, "o", "\x1b[9;1Hpassword=hu\x1b[20;1H> "))  # the cursor rests elsewhere
    assert "".join(event.data for event in stream.take(1.1)) == "sentence.\x1b[9;1H"
    stream.put(CastEvent(1.5, "o", "\x1b[9;12Hnter2-deep\x1b[20;3H"))
    later = "".join(event.data for event in stream.take(1.5 + GROWTH))
    assert later == f"password={'*' * 2}\x1b[20;1H> \x1b[9;12H{'*' * 10}\x1b[20;3H"
    assert stream.held == 0


def test_an_unfinished_private_key_holds_nothing_back() -> None:
    """R43: the first line that cannot be a row of the key ends it."""
    row = "MIIE" + "vQ7a" * 15
    text = f"-----BEGIN PRIVATE KEY-----\r\n{row}\r\n{row}\r\n$ make\r\n{FILLER}"
    stream = StreamRedactor(Redactor(), 80)
    stream.put(CastEvent(0.0, "o", text))
    assert "".join(event.data for event in stream.take(0.1)) == text.replace(row, "*" * len(row))


def test_held_output_is_bounded() -> None:
    for endless in (
        "\x1b]0;",
        "\x1b[38;5;1m",
        "-----BEGIN PRIVATE KEY-----\r\n",
        TOKEN,
        "\x1bP",
        "\x1b",
        "│",
    ):
        stream = StreamRedactor(Redactor(), 80)
        for at in range(3):  # half as much again as it may hold
            stream.put(CastEvent(at, "o", endless * (MAX_HOLD // 2 // len(endless))))
            stream.take(at)
            assert stream.held <= MAX_HOLD


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


@settings(max_examples=many(300))
@example(["\x1b\x1b", f"\x1bP{TOKEN}"], 0.1)
@example([f"{TOKEN}\x1b[5;7H{'x' * 90}/\x1b[5;7H-----BEGIN PRIVATE KEY-----"], 0.1)
@given(st.lists(st.lists(PARTS, max_size=12).map("".join), max_size=8), st.sampled_from([0.1, 9.0]))
def test_only_secrets_change(pieces: list[str], pause: float) -> None:
    """R44: the length stays the same, each character is kept or covered, and no whole token is readable."""
    text = "".join(pieces)
    written = through(*pieces, pause=pause)
    assert len(written) == len(text)
    assert all(a == b or b == "*" for a, b in zip(text, written, strict=True))
    grid = Grid(80, 24)
    grid.feed(written)
    assert not any(TOKEN in passage.text for passage in grid.passages())


RECORDINGS = sorted((Path(__file__).parent.parent / "recordings").rglob("*.cast"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_output_of_real_agents_without_secrets_is_unchanged(path: Path) -> None:
    """R44: recordings of real agents without secrets."""
    cast = Cast(path, strict=True)
    drawn = [event.data for event in cast if event.kind == "o"]
    assert through(*drawn, columns=cast.header.columns, rows=cast.header.rows) == "".join(drawn)


class CountingRedactor(Redactor):
    """Counts the characters that it searches. Regular expressions get them in segments of a fixed size."""

    searched = 0

    def find(self, text: str) -> list[Secret]:
        self.searched += len(text)
        return super().find(text)


def searched(output: str) -> int:
    """Return how many characters are searched for secrets while `output` is redacted."""
    redactor = CountingRedactor()
    stream = StreamRedactor(redactor, 80)
    stream.put(CastEvent(0, "o", output))
    stream.take(9.0)
    return redactor.searched


@pytest.mark.parametrize(
    "hostile",
    [
        *("a", "│", " ", "\x1b", "\x1b]", "\x1b[", "\r", "a\r", "日\x1b[2K\r", "\n", "a\x1b[2J", "\x1bM"),
        *("password=", "://x:", "eyJ", "\x1b[1;1H", "sk-ant-", "\x1b[1;1Hpassword=a1\r\n", "│ a \r\n"),
    ],
)
def test_hostile_output_is_searched_in_linear_time(hostile: str) -> None:
    """R44: twice the output means twice the search; quadratic work would hardly end."""
    size = 1 << 13
    once, twice = (searched(hostile * (length // len(hostile))) for length in (size, 2 * size))
    assert twice < 2.5 * once + 1000
    assert once < 200 * size


BODY = ["MIIE" + f"{n:02}" + "vQ7aZk" * 9 + "Zk4+" for n in range(12)]
FIRST, LAST = "-----BEGIN RSA PRIVATE" + " KEY-----", "-----END RSA PRIVATE" + " KEY-----"
BEARER = "V1jFz" + "20eBahcy7" * 4


def text_of(written: str, columns: int = 120, rows: int = 40) -> str:
    """Return what a user can read of it, including the rows that scrolled off."""
    grid = Grid(columns, rows)
    grid.feed(written)
    return "\n".join(row.text for row in grid.rows)


def by_columns(line: str, indent: int = 2) -> str:
    """Return `line` as Claude Code draws it: each word at its column."""
    words = re.finditer(r"\S+", " " * indent + line)
    return "".join(f"\x1b[{word.start() + 1}G{word[0]}" for word in words)


def test_secrets_are_redacted_in_words_drawn_at_columns() -> None:
    """R44: Claude Code draws that way."""
    lines = [f"Authorization: Bearer {BEARER}", f'api_key = "{PASSWORD}x1"', FIRST, *BODY, LAST, "esc to end"]
    written = through("\r\r\n".join(map(by_columns, lines)), columns=120, rows=40)
    assert not any(secret in written for secret in (BEARER, PASSWORD, *BODY))
    read = [row.strip() for row in text_of(written).split("\n")]
    assert next(row for row in read if row) == f"Authorization: Bearer {'*' * len(BEARER)}"
    assert FIRST in read and LAST in read and "esc to end" in read and "*" * 64 in read


def difference(before: str, after: str, row: int) -> str:
    """Return the changed cells, as Codex draws them: it skips those where two rows agree."""
    width = max(len(before), len(after))
    old, new = before.ljust(width), after.ljust(width)
    return "".join(
        f"\x1b[{row};{match.start() + 1}H{new[match.start() : match.end()]}"
        for match in re.finditer("1+", "".join("1" if a != b else "0" for a, b in zip(old, new, strict=True)))
    )


def test_secrets_are_redacted_where_only_changed_cells_are_drawn() -> None:
    """R44: Codex scrolls that way, each row over the previous one."""
    lines = [f"{FILLER.strip()} {n}" for n in range(8)] + [
        f"password={PASSWORD}",
        f"token {TOKEN}",
        KEY,
        f"Authorization: Bearer {BEARER}",
        FIRST,
        *BODY,
        LAST,
        *(f"And {n} lines without." for n in range(12)),
    ]
    rows, frames, shown = 12, [], [""] * 12
    for top in range(len(lines) - rows + 1):
        window = lines[top : top + rows]
        frame = "".join(difference(a, b, n + 1) for n, (a, b) in enumerate(zip(shown, window, strict=True)))
        frames.append(f"\x1b[?2026h{frame}\x1b[{rows + 2};3H\x1b[?2026l")
        shown = window
    for size in (1, 3, len(frames)):  # frames in a second
        pieces = ["".join(frames[n : n + size]) for n in range(0, len(frames), size)]
        written = through(*pieces, columns=120, rows=14, pause=1.0)
        played = Grid(120, 14)
        seen = []
        for match in re.finditer(r"(?s).*?\x1b\[\?2026l", written):
            played.feed(match[0])
            seen += [row.text for row in played.rows]
        for secret in (TOKEN, KEY, BEARER, PASSWORD, *BODY):
            pieces_of = {secret[n : n + 12] for n in range(len(secret) - 11)}
            assert not any(piece in row for piece in pieces_of for row in seen), secret
        assert any("And 11 lines without." in row for row in seen)


@pytest.mark.parametrize("size", [7, 13])
def test_secrets_are_redacted_in_an_answer_redrawn_as_it_grows(size: int) -> None:
    """R44: the end of a value is covered in everything drawn while it grew."""
    text = "\n".join([f"password: {PASSWORD}", FIRST, *BODY[:3], LAST, KEY, "end"])
    frames = []
    for end in range(size, len(text) + size, size):
        rows = text[:end].split("\n")
        frames.append("".join(f"\r\x1b[2K    {row}\r\n" for row in rows) + f"  ⠋ busy\x1b[{len(rows)}A")
    written = through(*frames, columns=120, rows=40, pause=0.1)
    for secret in (PASSWORD, KEY, *BODY[:3]):
        assert secret[: max(size, 8)] not in written


def test_a_value_wrapped_onto_the_row_below_its_name_is_redacted() -> None:
    """R44: wrapped between two words. A value below a name that had room does not belong to that name."""
    row = f"{'the header of it is then'.ljust(60)} Authorization: Bearer"
    written = through(f"  {row}\r\n  {BEARER} end", columns=120)
    assert written == f"  {row}\r\n  {'*' * len(BEARER)} end"
    apart = f"Authorization: Bearer\r\n{BEARER} end"
    assert through(apart, columns=120) == apart


def test_a_secret_recognised_late_is_redacted_where_it_first_appeared() -> None:
    """R44: a name reveals a value drawn earlier, which is still held back."""
    written = through(f"it is {PASSWORD} or so\r\npassword={PASSWORD}\r\n")
    assert PASSWORD not in written
