"""When a schedule is due, even across clock changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relay.supervision.schedule import Schedule, check_cron, duration, zone_of
from support import many

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the system's time zone to Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def starts(schedule: Schedule, since: datetime, number: int) -> list[str]:
    """Return the first starts after `since`, in its time zone."""
    moment, found = since.timestamp(), []
    for _ in range(number):
        moment = schedule.next_after(moment)
        found.append(datetime.fromtimestamp(moment, since.tzinfo).strftime("%d %H:%M %z"))
    return found


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("1h30m", 5400), ("7d", 604_800), ("0s", 0)]
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "h", "1 h", "-1h", "1.5h", "1w", "1h ", "\u0661h"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write one like '90s'"):
        duration(text)


def test_an_interval_counts_from_the_last_start() -> None:
    assert Schedule(every=3600).next_after(1000.5) == 4600.5


def test_cron_uses_its_own_time_zone() -> None:
    weekdays = Schedule(cron="0 9 * * 1-5", timezone="Europe/Berlin")
    friday = datetime(2026, 3, 27, 9, 0, tzinfo=BERLIN)  # the clocks change on Sunday
    assert starts(weekdays, friday, 2) == ["30 09:00 +0200", "31 09:00 +0200"]
    assert starts(Schedule(cron="0 9 * * *", timezone="UTC"), friday, 1) == ["27 10:00 +0100"]


@pytest.mark.parametrize("zone", ["Europe/Berlin", ""])
@pytest.mark.parametrize(
    ("cron", "since", "expected"),
    [
        # 02:00 to 03:00 is skipped on 29 March
        ("30 2 * * *", (2026, 3, 28, 12), ["29 03:00 +0200", "30 02:30 +0200"]),
        ("*/30 * * * *", (2026, 3, 29, 1), ["29 01:30 +0100", "29 03:00 +0200", "29 03:30 +0200"]),
        # 02:00 to 03:00 occurs twice on 25 October
        ("30 2 * * *", (2026, 10, 24, 12), ["25 02:30 +0200", "26 02:30 +0100"]),
        (
            "*/30 * * * *",
            (2026, 10, 25, 1, 59),
            ["25 02:00 +0200", "25 02:30 +0200", "25 02:00 +0100", "25 02:30 +0100", "25 03:00 +0100"],
        ),
    ],
)
def test_cron_handles_clock_changes(
    berlin: None, zone: str, cron: str, since: tuple[int, ...], expected: list[str]
) -> None:
    schedule = Schedule(cron=cron, timezone=zone)
    assert starts(schedule, datetime(*since, tzinfo=BERLIN), len(expected)) == expected  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not have five fields"),
        ("0 0 9 * * *", "does not have five fields"),
        ("@daily", "does not have five fields"),
        ("60 * * * *", "is not a cron expression (bad minute)"),
        ("0 0 30 2 *", "is not a cron expression (bad day-of-month)"),
        ("0 0 */20 * 1L", "is never due within 50 years"),
    ],
)
def test_an_invalid_cron_expression_is_rejected(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="minute, hour, day of the month") as raised:
        check_cron(text)
    assert reason in str(raised.value)


@settings(max_examples=many(200))
@given(
    st.lists(st.text(st.sampled_from("0123456789*/-,#LWMON "), max_size=5), min_size=5, max_size=5).map(
        " ".join
    ),
    st.integers(0, 4_000_000_000),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
)
@example("* * * * 1#2/3", 0, "UTC")
@example("*/7 1-3 * * *", 1_774_742_400, "Europe/Berlin")
def test_a_valid_cron_expression_is_due_later_on_a_full_minute(text: str, moment: int, zone: str) -> None:
    try:
        check_cron(text)
    except ValueError:
        return
    due = Schedule(cron=text, timezone=zone).next_after(moment)
    assert due > moment and due % 60 == 0


def test_an_unknown_time_zone_is_rejected() -> None:
    for name in ("Mars/Phobos", "../etc/passwd", "/etc/localtime", "\0"):
        with pytest.raises(ValueError, match="not a known time zone"):
            zone_of(name)


def test_the_default_time_zone_is_the_systems(berlin: None) -> None:
    moment = datetime(2026, 7, 1, 12, tzinfo=UTC).astimezone(zone_of(""))
    assert (moment.hour, moment.tzname()) == (14, "CEST")
