"""The lesson: what an agent that joins is told of relay, in at most LIMIT characters.

The text is config/lesson.md, or the person's own `lesson.md` in their config folder; `{name}`, `{team}`,
`{others}`, `{channels}` and `{at}` (what begins a directive) are filled in.  It shows no directive literally,
so that its echo, or an agent that quotes it, gives none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relay import data
from relay.home import Home
from relay.text import one_line

FILE = "lesson.md"

LIMIT = 800
"""Characters of the shipped lesson: 200 tokens at 4 characters each."""

NOBODY = "nobody yet"

_CHANNELS = 3  # so many are named


def read(home: Home) -> tuple[str, str | None]:
    """The text to fill in, and a notice where the person's own file cannot be read and the shipped one is
    taken."""
    own = home.config / FILE
    try:
        return own.read_text("utf-8"), None
    except FileNotFoundError:
        return _shipped(), None
    except (OSError, UnicodeDecodeError) as error:
        return _shipped(), f"{own}: cannot be read ({error}); the lesson that ships with relay is used."


def compose(
    template: str, *, name: str, team: str, others: Sequence[str], channels: Sequence[str] = (), prefix: str
) -> str:
    """`template` filled in; of `others` as many as keep it within LIMIT are named, of `channels` a few."""
    names = [one_line(other, 40) for other in others]
    heard = _hears(channels)
    for shown in range(len(names), -1, -1):
        rest = len(names) - shown
        listed = ", ".join([*names[:shown], *([f"{rest} more"] if rest else [])]) or NOBODY
        text = _fill(template, name=name, team=team, others=listed, channels=heard, at=prefix)
        if len(text) <= LIMIT:
            break
    return text


def _hears(channels: Sequence[str]) -> str:
    """A sentence on what the agent hears, after a blank; nothing where that is nothing."""
    if not channels:
        return ""
    shown = ", ".join(f"#{one_line(each, 20)}" for each in channels[:_CHANNELS])
    rest = f" and {len(channels) - _CHANNELS} more" if len(channels) > _CHANNELS else ""
    return f" You hear {shown}{rest}; such a name is a receiver, too."


def _fill(template: str, **values: str) -> str:
    """Not str.format: a person's own text may hold other braces."""
    for key, value in values.items():
        template = template.replace("{" + key + "}", value)
    return template.strip()


def _shipped() -> str:
    return Path(data.directory("config") / FILE).read_text("utf-8")
