"""How much of its provider's rate limits an account has used, according to an agent's own record."""

from __future__ import annotations

import math
from typing import Any

from relay.dataclass import asdict, dataclass, fields

_WEEK, _DAY, _HOUR = 7 * 24 * 60, 24 * 60, 60  # minutes


@dataclass(frozen=True, slots=True)
class LimitWindow:
    """One limit.

    The man page shows these lines (`make man`). Times are in seconds since the epoch.

    used_percent:   how much of it is used.
    window_minutes: the length of its window, which identifies the limit; None if unknown.
    resets_at:      when it starts again; None if unknown.
    """

    used_percent: float
    window_minutes: int | None = None
    resets_at: float | None = None

    @property
    def length(self) -> str:
        """The length of the window in words: "5 h", "weekly", "3 d"; "limit" if it is unknown."""
        if not self.window_minutes:
            return "limit"
        if self.window_minutes == _WEEK:
            return "weekly"
        for unit, name in ((_DAY, "d"), (_HOUR, "h")):
            if self.window_minutes % unit == 0:
                return f"{self.window_minutes // unit} {name}"
        return f"{self.window_minutes} min"


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits of an account. at: as of when, in seconds since the epoch. windows: the shortest first."""

    at: float
    windows: tuple[LimitWindow, ...]

    def public(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, given: object) -> RateLimits | None:
        """Return the limits in a JSON object; None if it has none. Raise nothing."""
        values = given if isinstance(given, dict) else {}
        at, windows = _number(values.get("at")), values.get("windows")
        return None if at is None or not isinstance(windows, list) else limits(at, windows)


def limits(at: float, given: list[Any]) -> RateLimits | None:
    """Return the limits whose windows are `given` as of `at`; None if none is valid.

    Each is a JSON object with the fields of LimitWindow, or with resets_in_seconds after `at`.
    """
    windows = [window for each in given if (window := _window(each, at)) is not None]
    windows.sort(key=lambda window: window.window_minutes or math.inf)
    return RateLimits(at, tuple(windows)) if windows else None


def _window(given: object, at: float) -> LimitWindow | None:
    values = given if isinstance(given, dict) else {}
    if (after := _number(values.get("resets_in_seconds"))) is not None:
        values = {"resets_at": at + after} | values
    used, minutes, resets = (_number(values.get(each.name)) for each in fields(LimitWindow))
    return None if used is None else LimitWindow(used, None if minutes is None else int(minutes), resets)


def _number(value: object) -> float | None:
    """Return `value` if it may be a percentage or a time; None for anything else."""
    valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11
    return float(value) if valid else None  # type: ignore[arg-type]
