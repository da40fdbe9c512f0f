"""OSC 7501 as specified: which reports are valid, which are ignored, and what ends a record."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.shim import query
from relay.shim.aside import Asides
from relay.terminal import status
from relay.terminal.status import MAX_RECORDS, StatusRecords


def parse(*reports: str) -> StatusRecords:
    records = StatusRecords()
    for each in reports:
        records.report(f"7501;{each}".encode(), 1.0)
    return records


def b64(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def states(records: StatusRecords) -> dict[str, str]:
    return {record.id: record.state for record in records.all()}


def test_a_report_is_one_record() -> None:
    record = parse(
        f"state=blocked:kind=permission:progress=40:app=codex:title={b64('Tïtle')}:msg={b64('x')}"
    ).root()
    assert record is not None
    assert (record.state, record.kind, record.progress) == ("blocked", "permission", 40)
    assert (record.app, record.title, record.msg, record.time) == ("codex", "Tïtle", "x", 1.0)


def test_a_report_replaces_its_record_whole() -> None:
    record = parse("state=working:app=a:progress=3", "state=idle").root()
    assert record is not None
    assert (record.app, record.progress) == ("", None)


@pytest.mark.parametrize(
    "report",
    [
        "state=working:rubbish:app=x",
        "state=working:UPPER=1:app=x",
        "state=working:app=a b:app=x",
        "state=working:app=first:app=x",
        "state=idle:state=working:app=x",
        "state=working:unknown=1:app=x:",
        "state=working:app=x:kind=permission",
        "state=working:app=x:progress=soon",
        "state=working:app=x:abcdefghijklmnopq=1",
        "state=working:app=x:app=\x07",
    ],
)
def test_invalid_pairs_are_skipped_and_the_last_duplicate_wins(report: str) -> None:
    record = parse(report).root()
    assert record is not None
    assert (record.state, record.app, record.kind, record.progress) == ("working", "x", "", None)


INVALID = [
    "?",
    "",
    "app=x",
    "state=",
    "state=Working",
    "state=busy",
    "state=working:progress=101",
    f"state=working:app={'a' * 33}",
    "state=working:id=",
    "state=working:id=a//b",
    f"state=working:id={'/'.join('abcdefghi')}",
    f"state=working:id={'a' * 129}",
    "state=working:title=abc",
    "state=working:title=====",
    f"state=working:title={b64('a' * 193)}",
    f"state=working:msg={b64('a' * 2049)}",
    f"state=working:msg={b64('red' + chr(27))}",
    f"state=working:msg={b64(chr(0x9B))}",
    "state=working:msg=" + base64.b64encode(b"\xff").decode(),
    "state=working:x=" + "a" * 4096,
]


def test_an_invalid_report_changes_nothing(subtests: pytest.Subtests) -> None:
    for report in INVALID:
        with subtests.test(repr(report[:99])):
            records = parse("state=idle")
            assert not records.report(f"7501;{report}".encode(), 2.0)
            assert states(records) == {"": "idle"}


def test_other_sequences_are_ignored() -> None:
    assert not StatusRecords().report(b"75010;state=working", 1.0)
    assert not StatusRecords().report(b"0;state=working", 1.0)


def test_limits_are_inclusive() -> None:
    records = parse(
        f"state=working:app={'a' * 32}:id={'/'.join('abcdefgh')}:progress=100"
        f":title={b64('a' * 192)}:msg={b64('a' * 2048)}",
        f"state=idle:id={'a' * 128}",
    )
    assert len(records.all()) == 2


def test_clear_removes_a_record_and_those_below_it() -> None:
    ids = ["a", "a/b", "a/b/c", "ab", "b"]
    reports = ["state=working", *(f"state=working:id={id}" for id in ids)]
    assert set(states(parse(*reports, "state=clear:id=a"))) == {"", "ab", "b"}
    assert not parse(*reports, "state=clear").all()


def test_the_least_recently_updated_record_is_dropped() -> None:
    reports = [f"state=working:id={number}" for number in range(MAX_RECORDS)]
    records = parse(*reports, "state=idle:id=0", "state=working:id=new")
    assert len(records.all()) == MAX_RECORDS
    assert "0" in states(records)
    assert "1" not in states(records)


def test_the_end_of_the_program_removes_its_unfinished_records() -> None:
    records = parse(
        "state=working", "state=blocked:id=b", "state=done:id=d", "state=error:id=e", "state=idle:id=i"
    )
    records.prompt_started()
    assert states(records) == {"d": "done", "e": "error", "i": "idle"}


def test_a_stream_is_read_in_order_however_it_is_split() -> None:
    stream = (
        b"text\x1b]7501;state=done:id=old\x07\x1bc\x1b]7501;state=working\x1b\\\x1b]133;A\x1b\\"
        b"\x1b[31m\x1b]7501;?\x1b\\\x1b]7501;state=done:id=x\x1b\\\x1b]0;title\x07more\x1b]133;A;k=1\x07"
        b"\x1b]7501;state=blocked:kind=question\x07"
    )
    for size in range(1, len(stream) + 1):
        records = StatusRecords()
        found = [records.feed(stream[at : at + size], 1.0) for at in range(0, len(stream), size)]
        assert any(found)
        assert states(records) == {"x": "done", "": "blocked"}, size


def test_a_report_without_an_end_is_discarded() -> None:
    records = StatusRecords()
    records.feed(b"\x1b]7501;state=working:x=" + b"a" * 5000, 1.0)
    assert not records.feed(b"\x07", 1.0)
    assert records.feed(b"\x1b]7501;state=idle\x07", 1.0)


@given(st.binary(max_size=200), st.integers(1, 50))
def test_no_bytes_break_the_parser(data: bytes, size: int) -> None:
    records = StatusRecords()
    records.report(b"7501;" + data, 1.0)
    for at in range(0, len(data), size):
        records.feed(data[at : at + size], 1.0)
    assert records.feed(b"\x18\x07\x1b]7501;state=idle\x07", 2.0)


PIECES = [b"\x1b", b"]", b"7501", b";", b"?", b"\\", b"\x07", b"a", b"\x1b]7501;?", query.QUERY]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join), st.integers(1, 12))
def test_only_queries_are_filtered_out_however_the_input_is_split(data: bytes, size: int) -> None:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    answers, queries = query.AnswerFilter(), query.QueryFinder()
    answers.expected = True
    rest = b"".join(map(answers.feed, pieces)) + answers.flush()
    found = [each for piece in pieces for each in queries.feed(piece)]
    whole, expected, tail = query.sift(data)
    assert (rest, found) == (whole + tail, expected)
    assert answers.answered == bool(expected)
    assert len(data) == len(rest) + sum(map(len, expected))
    assert all(each in (query.QUERY, b"\x1b]7501;?\x07") for each in found)


def test_without_a_query_to_the_terminal_no_keys_are_filtered_out() -> None:
    answers = query.AnswerFilter()
    assert answers.feed(query.QUERY) == query.QUERY
    assert not answers.answered


@pytest.mark.parametrize(
    ("state", "kind", "expected"),
    [
        ("ready", "", b"state=idle:app=relay"),
        ("working", "", b"state=working:app=relay"),
        ("prompting", "plan_approval", b"state=blocked:kind=permission:app=relay"),
        ("prompting", "other", b"state=blocked:app=relay"),
        ("failed", "permission", b"state=error:app=relay"),
    ],
)
def test_relays_own_reports_are_valid(state: str, kind: str, expected: bytes) -> None:
    report = status.report(state, kind)
    assert report == b"\x1b]7501;" + expected + b"\x1b\\"
    assert StatusRecords().feed(report, 1.0)
    assert b"app" not in status.report(state, kind, "no name\x1b")


OUTPUTS = [
    (b"plain", True),
    (b"\x1b[31m", True),
    (b"\x1b[31", False),
    (b"\x1b", False),
    (b"\x1b(", False),
    (b"\x1b(B", True),
    (b"\x1b]0;title", False),
    (b"\x1b]0;title\x07", True),
    (b"\x1b]0;title\x1b\\", True),
    (b"\x1bP1$r", False),
    ("é".encode()[:1], False),
    ("é".encode(), True),
    ("😀".encode()[:3], False),
    (b"\xff", True),
]


def test_an_aside_waits_for_the_end_of_a_sequence(subtests: pytest.Subtests) -> None:
    for output, free in OUTPUTS:
        with subtests.test(repr(output)):
            asides = Asides()
            asides.output(b"\x1b[1mbefore")
            asides.output(output)
            asides.add(b"\x07")
            assert asides.due() == (b"\x07" if free else b"")
            assert asides.waiting is not free


@pytest.mark.parametrize("begin", [b"\x1b]52;c;", b"\x1bPq"])
def test_an_aside_waits_for_the_end_of_a_long_control_string(begin: bytes) -> None:
    """An image or copied text spans many reads."""
    asides = Asides()
    asides.output(begin + b"A" * 10_000)
    asides.add(b"\x07")
    for _ in range(3):
        asides.output(b"A" * 10_000)
        assert asides.due() == b""
    asides.output(b"A\x1b\\")
    assert asides.due() == b"\x07"


def test_an_aside_does_not_wait_for_plain_output() -> None:
    asides = Asides()
    asides.output(b"\x1b]0;title\x07" + b"A" * 10_000)
    asides.output(b"A" * 10_000)
    asides.add(b"\x07")
    assert asides.due() == b"\x07"
