"""The time at which a limit ends, parsed from agents' messages."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.agents.reset_time import LONGEST, parse_reset

NEW_YORK = ZoneInfo("America/New_York")
ZONES = ("America/New_York", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe", "UTC")
NOW = datetime(2026, 3, 31, 12, 0, 30, tzinfo=NEW_YORK)


def at(wording: str, now: datetime = NOW) -> str | None:
    """Return the instant in New York as text."""
    found = parse_reset(wording, now.timestamp(), NEW_YORK)
    return None if found is None else datetime.fromtimestamp(found, NEW_YORK).isoformat()


WORDINGS = [
    # claude 2.1.197: within 24 hours; later; in another year; with the no-break space of newer ICUs
    ("8pm (America/New_York)", "2026-03-31T20:00:00-04:00"),
    ("6:05am (America/New_York)", "2026-04-01T06:05:00-04:00"),
    ("Apr 1 at 9am (Europe/Berlin)", "2026-04-01T03:00:00-04:00"),
    ("Nov 29, 3:17am (America/New_York)", "2026-11-29T03:17:00-05:00"),
    ("Jan 2, 2027, 9am (UTC)", "2027-01-02T04:00:00-05:00"),
    ("8:30\u202fpm (America/New_York)", "2026-03-31T20:30:00-04:00"),
    # codex 0.169.0
    ("7:58 PM.", "2026-03-31T19:58:00-04:00"),
    ("11:04 AM.", "2026-04-01T11:04:00-04:00"),
    ("Sep 15th, 2026 4:55 AM.", "2026-09-15T04:55:00-04:00"),
    ("Nov 1st, 2026 12:00 PM", "2026-11-01T12:00:00-05:00"),
    ("3 days 4 hours 5 minutes", "2026-04-03T16:05:30-04:00"),
    # gemini, pi, providers
    ("5h20m7s", "2026-03-31T17:20:37-04:00"),
    ("43.5s", "2026-03-31T12:01:13.500000-04:00"),
    ("~45 min", "2026-03-31T12:45:30-04:00"),
    # other wordings
    ("in 3 hours 20 minutes", "2026-03-31T15:20:30-04:00"),
    ("in an hour and 5 minutes", "2026-03-31T13:05:30-04:00"),
    ("at 19:58", "2026-03-31T19:58:00-04:00"),
    ("noon", None),
    ("12am", "2026-04-01T00:00:00-04:00"),
    ("1 Apr 9:00", "2026-04-01T09:00:00-04:00"),
    ("Apr 1", "2026-04-01T00:00:00-04:00"),
    ("8pm UTC", "2026-03-31T16:00:00-04:00"),
    ("2026-04-01T09:00:00Z", "2026-04-01T05:00:00-04:00"),
    ("1775034000", "2026-04-01T05:00:00-04:00"),
]


def test_agents_wordings_are_understood(subtests: pytest.Subtests) -> None:
    for wording, expected in WORDINGS:
        with subtests.test(repr((wording, expected))):
            assert at(wording) == expected


IGNORED = [
    *(
        "",
        "later",
        "tomorrow-ish",
        "9",
        "13pm",
        "0am",
        "25:00",
        "8:61pm",
        "Feb 30 9am",
        "Apr 1 at",
        "Smarch 1",
    ),
    *("8pm (PST)", "8pm (America)", "8pm (No/Where)", "8pm (../../etc/passwd)", "8pm ()", "5 months"),
    *("in 0 seconds", "99999999 weeks", "9" * 400, "Mar 30th, 2026 1:00 AM", "Apr 1, 9999 9am"),
]


def test_an_unknown_wording_or_a_past_time_is_ignored(subtests: pytest.Subtests) -> None:
    for wording in IGNORED:
        with subtests.test(repr(wording)):
            assert at(wording) is None


def test_a_date_without_a_year_is_the_next_one() -> None:
    eve = datetime(2026, 12, 31, 23, 0, tzinfo=NEW_YORK)
    assert at("Jan 1 at 9am", eve) == "2027-01-01T09:00:00-05:00"
    assert at("12:30am", eve) == "2027-01-01T00:30:00-05:00"
    assert at("Dec 31, 9pm", eve) == "2027-12-31T21:00:00-05:00"
    assert at("Feb 29 9am", eve) == "2028-02-29T09:00:00-05:00"


def test_a_limit_lasts_to_the_end_of_its_minute() -> None:
    """Agents omit the seconds: a limit until 19:58:50 is shown as until 7:58 PM."""
    assert at("7:58 PM", NOW.replace(hour=19, minute=58)) == "2026-03-31T19:59:00-04:00"
    assert at("7:58 PM", NOW.replace(hour=19, minute=59, second=0)) == "2026-04-01T19:58:00-04:00"
    assert at("Mar 31, 12pm") == "2026-03-31T12:01:00-04:00"


def test_times_in_the_repeated_and_the_skipped_hour_are_resolved() -> None:
    autumn = datetime(2026, 11, 1, 1, 15, tzinfo=NEW_YORK)
    assert at("1:30am", autumn) == "2026-11-01T01:30:00-04:00"
    assert at("1:30am", autumn + timedelta(minutes=20)) == "2026-11-01T01:30:00-05:00"
    assert at("1:30am", autumn.replace(fold=1, minute=45)) == "2026-11-02T01:30:00-05:00"
    spring = datetime(2026, 3, 8, 1, 0, tzinfo=NEW_YORK)
    assert at("3am", spring) == "2026-03-08T03:00:00-04:00"
    assert at("2:30am", spring) == "2026-03-08T03:30:00-04:00"


def test_a_time_without_a_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent and its session share one environment."""
    import time

    for zone in ZONES:
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert parse_reset("8pm", NOW.timestamp()) == parse_reset(f"8pm ({zone})", NOW.timestamp(), NEW_YORK)
    monkeypatch.undo()
    time.tzset()


instants = st.integers(min_value=1_700_000_000, max_value=2_200_000_000)


@given(now=instants, minutes=st.integers(1, 24 * 60 - 1), zone=st.sampled_from(ZONES))
def test_a_time_of_day_is_its_next_occurrence(now: int, minutes: int, zone: str) -> None:
    here = ZoneInfo(zone)
    target = (now // 60 + minutes) * 60
    local = datetime.fromtimestamp(target, here)
    for shown in (
        f"{local:%-I:%M%p} ({zone})".lower().replace(zone.lower(), zone),
        f"{local:%-I:%M %p}.",
        f"{local:%H:%M}",
    ):
        found = parse_reset(shown, now, here)
        assert found is not None and now < found <= max(target, now + 60)
        assert found == target or f"{datetime.fromtimestamp(found - 60, here):%H:%M}" in {
            f"{local:%H:%M}",  # this very minute
            f"{local - timedelta(minutes=1):%H:%M}",  # the first occurrence of the repeated hour
        }


@given(now=instants, minutes=st.integers(1, 360 * 24 * 60), zone=st.sampled_from(ZONES))
def test_a_date_is_its_next_occurrence(now: int, minutes: int, zone: str) -> None:
    here = ZoneInfo(zone)
    target = (now // 60 + minutes) * 60
    local = datetime.fromtimestamp(target, here)
    repeated = local.utcoffset() != local.replace(fold=1 - local.fold).utcoffset()
    for shown in (
        f"{local:%b %-d, %-I:%M%p} ({zone})",
        f"{local:%b %-d at %-I:%M %p}",
        f"{local:%b %-d}th, {local:%Y %-I:%M %p}.",
    ):
        found = parse_reset(shown, now, here)
        assert found == target or (repeated and found is not None and now < found < target + 3600)


@given(now=instants, seconds=st.integers(1, 30 * 86_400))
def test_a_duration_counts_from_now(now: int, seconds: int) -> None:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    assert parse_reset(f"in {days} days {hours} hours, {minutes} minutes and {rest} s", now) == now + seconds
    assert parse_reset(f"{days}d{hours}h{minutes}m{rest}s", now) == now + seconds


words = st.sampled_from(
    [
        "in",
        "at",
        "8",
        "pm",
        "Apr",
        "1",
        "31st",
        "2026",
        ",",
        ":",
        "30",
        "hours",
        "m",
        "(",
        ")",
        "UTC",
        "9999999999",
    ]
)


@given(
    wording=st.one_of(
        st.text(max_size=LONGEST + 5), st.lists(words, max_size=8).map(" ".join), st.lists(words).map("".join)
    ),
    now=st.one_of(instants.map(float), st.floats(allow_nan=False, allow_infinity=False)),
)
def test_any_text_is_a_later_time_or_none(wording: str, now: float) -> None:
    found = parse_reset(wording, now, NEW_YORK)
    assert found is None or found > now
