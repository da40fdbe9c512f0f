"""Scheduled starts: at an interval, or at the times of a cron expression."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Literal

from cronsim import CronSim, CronSimError

from relay.dataclass import dataclass

Overlap = Literal["skip"]

MISSED = 300.0
"""Seconds after which a start that did not happen counts as missed."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(?:[0-9]{1,9}[smhd])+")


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times at which an agent starts; exactly one of `every` and `cron` is set.

    every:    seconds from one start to the next.
    cron:     as in crontab(5). timezone: its zone, an IANA name; "": the system's.
    overlap:  skip: a start that is due while the agent is still running is skipped.
    catch_up: a missed start, as while the machine was off, is made up for, once.
    """

    every: float = 0.0
    cron: str = ""
    timezone: str = ""
    overlap: Overlap = "skip"
    catch_up: bool = False

    def next_after(self, moment: float) -> float:
        """Return the first start after `moment`, in seconds since the epoch; infinity for none in 50 years.

        With `every`, `moment` is the last start. A start in an hour that a clock change skips or repeats is
        due once, as in Debian's cron.
        """
        if self.every:
            return moment + self.every
        zone = zone_of(self.timezone)
        starts = CronSim(self.cron, datetime.fromtimestamp(moment, zone))
        return next((at for start in starts if (at := start.timestamp()) > moment), math.inf)

    def due(self, since: float, now: float) -> bool:
        """Return True if a start is due at `now`, in seconds since the epoch.

        since: the time of the last start, or of the schedule's beginning. A start that was due more than
        MISSED ago is made up for only with `catch_up`.
        """
        if self.every:
            late = (now - since) % self.every if now - since >= self.every else math.inf
            return late <= MISSED or (self.catch_up and late < math.inf)
        return self.next_after(since if self.catch_up else max(since, now - MISSED)) <= now


def duration(text: str) -> float:
    """Return the seconds in `90s`, `15m`, `1h30m` or `7d`. Raise ValueError, with advice."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write one like '90s', '15m', '1h30m' or '7d'.")
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text))


def check_cron(text: str) -> None:
    """Raise ValueError, with advice, unless `text` is a cron expression that has a next time."""
    example = "write minute, hour, day of the month, month and day of the week, like '0 9 * * 1-5'."
    try:
        if not text.isascii() or len(text.split()) != 5:
            raise ValueError(f"{text!r} does not have five fields; {example}")
        next(CronSim(text, datetime(2026, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        raise ValueError(f"{text!r} is not a cron expression ({str(error).lower()}); {example}") from None
    except StopIteration:
        raise ValueError(f"{text!r} is never due within 50 years; {example}") from None
    except (AssertionError, TypeError):  # what CronSim does not expect, such as "1#2/3"
        raise ValueError(f"{text!r} is not a cron expression; {example}") from None


@cache
def zone_of(name: str) -> tzinfo:
    """Return the time zone of an IANA name, "" for the system's. Raise ValueError, with advice."""
    if not name:
        return _SystemZone()
    from zoneinfo import ZoneInfo  # only needed for a named zone

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"not a known time zone: {name!r}. Write one like 'Europe/Berlin'.") from None


class _SystemZone(tzinfo):
    """The system's time zone with its clock changes; `datetime.astimezone` would fix a single offset."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime) -> datetime:
        seconds = moment.replace(tzinfo=UTC).timestamp()
        return datetime.fromtimestamp(seconds).replace(tzinfo=self)  # noqa: DTZ006 - it knows the fold
