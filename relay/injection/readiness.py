"""Whether it is safe to type into the agent now: judged from what its terminal shows, by rules that are data.

ready       typed text is what the program waits for
working     it computes, or prints, or has not read what was typed before
prompting   it asks for a decision or a secret; typed text would answer that
unsafe      typed text would be executed, or taken by another program
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from relay.injection.port import TtyState
from relay.injection.waiting import Wait
from relay.profile import Profile
from relay.text import one_line

QUIET = 0.25
"""Seconds without output after which a line program is taken to wait, where the system does not tell."""

SCREEN_QUIET = 0.5
"""Seconds without output after which a program that draws its own input is taken to wait.

Real agents are silent when idle, and animate at least every 0.6 s in a dialog and 0.1 s at work.
"""

DIALOG_ROWS = 12
"""Rows at the bottom of what is drawn in which a dialog is looked for; a dialog of agents has at most ten."""


class Readiness(StrEnum):
    READY = "ready"
    WORKING = "working"
    PROMPTING = "prompting"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A state and why, for a person. `wait`: seconds until time alone may change it; None: look again."""

    state: Readiness
    reason: str
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """What the terminal shows at one moment.

    wait:    what the kernel says the program waits for; looked up before everything else here.
    unfinished, rows: without what relay itself has typed.
    same:    it is the sleep in which the last typed text already found it.
    quiet:   seconds since the program's last output and since the last typing.
    nap:     the sleep in which the program reads the terminal, if it does (relay.injection.waiting).
    """

    tty: TtyState
    wait: Wait
    same: bool
    quiet: float
    output_pending: bool
    unwritten: int
    bracketed_paste: bool
    alternate: bool
    unfinished: str
    rows: tuple[str, ...]
    nap: tuple[int, int] | None = None


def judge(sight: Sight, profile: Profile) -> Verdict:
    """Whether a text may be typed now."""
    if found := danger(sight, profile):
        return found
    if sight.unwritten:
        return _working("it has not read what was typed before")
    if sight.output_pending:
        return _working("it is printing")
    return _line_program(sight) if sight.tty.canonical else _screen_program(sight, profile)


def danger(sight: Sight, profile: Profile) -> Verdict | None:
    """Why nothing must be typed or submitted, however quiet the program is; None if nothing forbids it."""
    tty = sight.tty
    if profile.inject == "never":
        return _unsafe(
            f"the profile {profile.name!r} says that nothing is typed into this program "
            '(what is typed would be executed); set inject = "auto" in it to allow that'
        )
    if not tty.foreground:
        return _working("no program has the terminal's foreground yet")
    if tty.foreground != tty.agent_group:
        return _unsafe("another program has the terminal's foreground")
    if sight.alternate and not profile.fullscreen:
        return _unsafe("it shows a full-screen interface that relay does not know")
    if tty.canonical and not tty.echo:
        return Verdict(Readiness.PROMPTING, "its terminal does not echo: it asks for a password")
    ordinary = bool(_match(profile.prompts, sight.unfinished))
    if not ordinary and (rule := _match(profile.executes, sight.unfinished)):
        return _unsafe(
            f"the line {_show(sight.unfinished)} is the prompt of a shell or language (rule {rule})"
        )
    return _asking(sight, profile, ordinary)


def _line_program(sight: Sight) -> Verdict:
    if sight.wait is Wait.BUSY:
        return _working("it waits for something else than its terminal")
    if sight.wait is Wait.READ and not sight.same:
        return Verdict(Readiness.READY, "it sleeps in a read of its terminal")
    if sight.quiet < QUIET:
        return _working(f"it printed within the last {QUIET} s", QUIET - sight.quiet)
    return Verdict(Readiness.READY, f"it has been quiet for {QUIET} s and its terminal takes lines")


def _screen_program(sight: Sight, profile: Profile) -> Verdict:
    if sight.quiet < SCREEN_QUIET:
        return _working(f"it drew within the last {SCREEN_QUIET} s", SCREEN_QUIET - sight.quiet)
    if sight.wait is Wait.BUSY:
        return _working("it waits for something else than its terminal")
    if not sight.bracketed_paste and not _match(profile.prompts, sight.unfinished):
        return _unsafe("it reads single keys, and shows no input that relay knows")
    return Verdict(Readiness.READY, f"it has been quiet for {SCREEN_QUIET} s and shows an input")


def _asking(sight: Sight, profile: Profile, ordinary: bool) -> Verdict | None:
    """The verdict *prompting*, if the program asks for something that ordinary text must not answer."""
    line = sight.unfinished
    if not ordinary and (rule := _match((*profile.decisions, *profile.questions), line)):
        return Verdict(Readiness.PROMPTING, f"{_show(line)} reads as a question (rule {rule})")
    drawn = [row for row in sight.rows if row.strip()]
    if sight.tty.canonical:
        # The choice may stand above a bare prompt mark; older lines have been answered, and other
        # questions are the agent's conversation.
        rules, rows = profile.decisions, drawn[-2 if line.strip() else -1 :]
    else:
        rules, rows = (*profile.decisions, *profile.dialogs), drawn[-DIALOG_ROWS:]
    for row in rows:
        if rule := _match(rules, row):
            return Verdict(Readiness.PROMPTING, f"{_show(row)} reads as a dialog (rule {rule})")
    return None


def _match(rules: Iterable[re.Pattern[str]], text: str) -> str | None:
    """The first rule that finds itself in `text`."""
    return next((rule.pattern for rule in rules if rule.search(text)), None) if text.strip() else None


def _show(text: str) -> str:
    return f"{one_line(text, 60)!r}"


def _unsafe(reason: str) -> Verdict:
    return Verdict(Readiness.UNSAFE, reason)


def _working(reason: str, wait: float | None = None) -> Verdict:
    return Verdict(Readiness.WORKING, reason, wait)
