"""The time an agent gives for the end of a limit: "8pm (America/New_York)", "in 3 hours 20 minutes".

    8pm · 8:30pm · 7:58 PM · 19:58                 the next such time
    Apr 1 at 9am · Apr 1, 9am · 1 Apr 9:00         the next such day, this year or a later one
    Sep 15th, 2026 4:55 AM · Apr 1, 2027 at 9am    that day
    in 3 hours 20 minutes · 5h20m7s · ~45 min      from now
    2026-04-01T09:00:00Z · 1775034000              ISO 8601, seconds since the epoch

A time may be followed by its zone: "(America/New_York)", a name of the IANA database, or "UTC". Without one
it is in the local zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

from relay import lazy_re

LONGEST = 100
"""Maximum characters of a wording; the agents' have about 40."""

_UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_YEARS = 8
"""Years within which every date comes again, and beyond which no limit lasts."""

_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_UNIT = r"(?:weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)"
_PART = lazy_re.compile(rf"(?:({_NUMBER}) ?|\b(?:an?|one) )({_UNIT})(?![a-z])")
_DURATION = lazy_re.compile(rf"(?:{_PART.pattern}(?:,? and |, ?| ?))+")
_EPOCH = lazy_re.compile(r"\d{10}(?:\d{3})?")
_ISO = lazy_re.compile(r"\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:z|[+-]\d\d:?\d\d)?")
_ZONE = lazy_re.compile(r"(.*?) ?(?:\(([^()]+)\)|(?<= )(UTC|GMT))")
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})[a-z]*\.?"
_CLOCK = lazy_re.compile(
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d)(?::(?P<second>\d\d))?)? ?(?P<half>[ap]\.?m\.?)?"
)
_DATES = tuple(
    lazy_re.compile(rf"{date}(?:,? (?P<year>\d{{4}}))?(?:(?:,| at|, at)? (?P<clock>\d.*))?")
    for date in (rf"{_MONTH} {_DAY}", rf"{_DAY} {_MONTH}")
)


def parse_reset(wording: str, now: float, zone: tzinfo | None = None) -> float | None:
    """Return the instant that `wording` names, in seconds since the epoch; None if it is not understood.

    It is the first such instant after `now`, never one in the past. Agents leave out the seconds: within the
    named minute itself, return the end of that minute, not tomorrow's.

    zone: for a time without one; None is the local zone.
    """
    if len(wording) > LONGEST:
        return None
    try:
        found = _parse(" ".join(wording.split()), now, zone)
    except (ValueError, OverflowError, OSError):  # no such date, or beyond what a clock can show
        return None
    return found if found is not None and now < found <= now + _YEARS * 366 * 86_400 else None


def _parse(wording: str, now: float, zone: tzinfo | None) -> float | None:
    text = re.sub(r"\A(?:(?:in|at|on|after|about) |~ ?)+", "", wording.rstrip(" .!"), flags=re.IGNORECASE)
    if _DURATION.fullmatch(text.lower()):
        parts = _PART.findall(text.lower())
        return now + sum(_UNITS[unit[0]] * (float(n or 1)) for n, unit in parts)
    if _EPOCH.fullmatch(text):
        return float(text[:10])
    if named := _ZONE.fullmatch(text):
        text = named[1]
        if (zone := _zone(named[2] or named[3])) is None:
            return None
    text = text.lower()
    if _ISO.fullmatch(text):
        return next(_instants(datetime.fromisoformat(text.upper()), zone))
    return _next(text, now, zone)


def _zone(name: str) -> tzinfo | None:
    if name.upper() in {"UTC", "GMT", "Z"}:
        return UTC
    from zoneinfo import ZoneInfo  # only if a zone is named: a session that needs it has met a limit

    try:
        return ZoneInfo(name.strip())
    except (KeyError, ValueError, OSError):  # OSError: a folder of the database, such as "America"
        return None


def _next(text: str, now: float, zone: tzinfo | None) -> float | None:
    """Return the next instant of a time of day, a date, or both."""
    today = datetime.fromtimestamp(now, zone).replace(tzinfo=None)
    if (clock := _clock(text)) is not None:
        days = (today + timedelta(days=n) for n in (-1, 0, 1, 2))
        at = (day.replace(hour=0, minute=0, second=0, microsecond=0) + clock for day in days)
        return _first(at, now, zone)
    date = next((found for each in _DATES if (found := each.fullmatch(text))), None)
    if date is None or (clock := _clock(date["clock"]) if date["clock"] else timedelta()) is None:
        return None
    year = int(date["year"]) if date["year"] else None
    years = (year,) if year is not None else range(today.year - 1, today.year + _YEARS + 1)
    month, day = _MONTHS.index(date["month"]) + 1, int(date["day"])
    return _first((each + clock for each in _dates(years, month, day)), now, zone)


def _dates(years: range | tuple[int], month: int, day: int) -> Iterator[datetime]:
    for year in years:
        try:
            yield datetime(year, month, day)  # noqa: DTZ001 (its zone is added with its time)
        except ValueError:  # February 29
            continue


def _clock(text: str) -> timedelta | None:
    """Return a time of day, as the time since midnight; None if `text` is not one."""
    found = _CLOCK.fullmatch(text)
    if found is None or not (found["half"] or found["minute"]):
        return None
    hour, minute, second = int(found["hour"]), int(found["minute"] or 0), int(found["second"] or 0)
    if found["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found["half"][0] == "p" else 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return timedelta(hours=hour, minutes=minute, seconds=second)


def _first(times: Iterator[datetime], now: float, zone: tzinfo | None) -> float | None:
    for time in times:
        for instant in _instants(time, zone):
            if instant > now:
                return instant
            if now < instant + 60 and not time.second:
                return instant + 60
    return None


def _instants(time: datetime, zone: tzinfo | None) -> Iterator[float]:
    """Yield the instants at which clocks show `time`, earliest first: two in a repeated hour."""
    if time.tzinfo is not None:
        yield time.timestamp()
        return
    both = [time.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1)]
    shown = {at for at in both if datetime.fromtimestamp(at, zone).replace(tzinfo=None, fold=0) == time}
    yield from sorted(shown or both[:1])  # none in a skipped hour
