"""Whether it is safe to type into the agent now: judged from what its terminal shows, by rules that are data.

ready       typed text is what the program waits for
working     it computes, or prints, or has not read what was typed before, or a draft stands in its input
prompting   it asks for a decision or a secret; typed text would answer that
failed      it gave up, and says so; for a while nothing is typed
unsafe      typed text would be executed, or taken by another program

The first that decides, in this order:

    what the terminal itself forbids      another program's foreground, no echo
    a dialog that is drawn                the profile's state rules
    its hooks                             a lease, which newer evidence on the screen ends
    its status reports                    OSC 7501
    the screen                            the profile's state rules, and quiet
    the rules for any program             where the profile has no state rules

A wrong *ready* is the worst error: it types into a dialog.  So a profile that has a rule for ready needs
that rule to hold, whatever else is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from relay.agents.profile import Profile, PromptKind
from relay.state.detection import Detection, Look, detect
from relay.state.evidence import Evidence
from relay.state.port import TtyState
from relay.state.process_wait import Wait
from relay.text import one_line

QUIET = 0.25
"""Seconds without output after which a line program is taken to wait, where the system does not tell."""

SCREEN_QUIET = 0.5
"""Seconds without output after which a program that draws its own input is taken to wait.

Real agents are silent when idle, and animate at least every 0.6 s in a dialog and 0.1 s at work.
"""

DIALOG_ROWS = 12
"""Rows at the bottom of what is drawn in which a dialog is looked for; a dialog of agents has at most ten."""

PROMPT_LEASE = 2.0
"""Seconds for which the hooks' word that it asks holds although the screen shows no dialog: it draws one
within milliseconds, and after an answer no hook fires until the tool has ended."""

WORK_LEASE = 3.0
"""Seconds of quiet, at an input that is drawn, after which the hooks' word that it works has ended: an Esc
fires no Stop, and an agent at work animates."""

REPORT_LEASE = 30.0
"""The same for its status reports: what reported may have been killed, and took its last word with it."""

FAILURE = 60.0
"""Seconds for which an agent that failed is left alone; then a text may try it again."""


NEAR_ROWS = 4
"""The same for an agent with state rules none of which holds: what it said may quote a dialog just above its
input, and a text in that takes three rows or more; what a dialog itself shows last stands at the bottom."""


class Readiness(StrEnum):
    READY = "ready"
    WORKING = "working"
    PROMPTING = "prompting"
    FAILED = "failed"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A state and why, for a person.

    wait:  seconds until time alone may change it; None: look again.
    kind:  with prompting, what it asks for.
    rule:  the name of the state rule that decided, "" where none did.
    lines: the rows that made that rule hold.
    draft: with working: it does nothing, and a text stands in its input that nobody has submitted.
    """

    state: Readiness
    reason: str
    wait: float | None = None
    kind: PromptKind | None = None
    rule: str = ""
    lines: tuple[str, ...] = ()
    draft: bool = False


@dataclass(frozen=True, slots=True)
class Sight:
    """What the terminal shows at one moment.

    wait:    what the kernel says the program waits for; looked up before everything else here.
    unfinished, rows: without what relay itself has typed.
    same:    it is the sleep in which the last typed text already found it.
    quiet:   seconds since the program's last output and since the last typing.
    nap:     the sleep in which the program reads the terminal, if it does (relay.state.process_wait).
    drawn:   every visible row, with what relay itself has typed.
    title:   what the program has set as its terminal's title (OSC 0, OSC 2).
    evidence: what its hooks and its status reports said last.
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
    drawn: tuple[str, ...] = ()
    title: str = ""
    evidence: tuple[Evidence, ...] = ()


def judge(sight: Sight, profile: Profile) -> Verdict:
    """Whether a text may be typed now."""
    shown = _shown(sight, profile)
    if found := _danger(sight, profile, shown):
        return found
    if sight.unwritten:
        return _working("it has not read what was typed before")
    if sight.output_pending:
        return _working("it is printing")
    if found := _told(sight, shown) or _rules(sight, profile, shown):
        return found
    return _line_program(sight) if sight.tty.canonical else _screen_program(sight, profile)


def danger(sight: Sight, profile: Profile) -> Verdict | None:
    """Why nothing must be typed or submitted, however quiet the program is; None if nothing forbids it."""
    return _danger(sight, profile, _shown(sight, profile))


def _shown(sight: Sight, profile: Profile) -> Detection | None:
    return detect(Look(sight.drawn, sight.title), profile) if profile.states else None


def _danger(sight: Sight, profile: Profile, shown: Detection | None) -> Verdict | None:
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
    if shown is not None and shown.state == "prompting":
        return _by(shown, Readiness.PROMPTING, "it shows a dialog")
    if sight.alternate and not profile.fullscreen and shown is None:
        return _unsafe("it shows a full-screen interface that relay does not know")
    if tty.canonical and not tty.echo:
        return Verdict(Readiness.PROMPTING, "its terminal does not echo: it asks for a password")
    if found := _told_asking(sight, shown):
        return found
    if shown is not None:
        return None
    ordinary = bool(_match(profile.prompts, sight.unfinished))
    if not ordinary and (rule := _match(profile.executes, sight.unfinished)):
        return _unsafe(
            f"the line {_show(sight.unfinished)} is the prompt of a shell or language (rule {rule})"
        )
    return _asking(sight, profile, ordinary)


def _told_asking(sight: Sight, shown: Detection | None) -> Verdict | None:
    """The verdict *prompting* when hooks or reports say so and no newer evidence on the screen denies it."""
    for evidence in sight.evidence:
        if evidence.state != "prompting":
            continue
        if evidence.source == "hooks" and evidence.age >= PROMPT_LEASE and _moved_on(sight, shown):
            continue
        what = evidence.kind or PromptKind.OTHER
        detail = f": {one_line(evidence.detail, 60)}" if evidence.detail else ""
        left = PROMPT_LEASE - evidence.age
        return Verdict(
            Readiness.PROMPTING,
            f"{_source(evidence)} that it asks ({what}){detail}",
            left if left > 0 else None,
            what,
        )
    return None


def _moved_on(sight: Sight, shown: Detection | None) -> bool:
    """Whether the screen shows what only follows a dialog: it works, or waits at its input for some time."""
    if shown is None:
        return False
    return shown.state != "ready" or sight.quiet >= PROMPT_LEASE


def _told(sight: Sight, shown: Detection | None) -> Verdict | None:
    """What hooks and reports say, unless that it is ready: the screen must agree to that."""
    at_input = shown is not None and shown.state in {"ready", "failed"}  # an error ends a turn without a hook
    for evidence in sorted(sight.evidence, key=lambda one: one.source):  # hooks before status
        if evidence.state == "working":
            if at_input:
                lease = WORK_LEASE if evidence.source == "hooks" else REPORT_LEASE
                if sight.quiet >= lease:
                    continue
                return _working(f"{_source(evidence)} that it works", lease - sight.quiet)
            return _working(f"{_source(evidence)} that it works")
        works_again = shown is not None and shown.state == "working"
        if evidence.state == "failed" and evidence.age < FAILURE and not works_again:
            why = one_line(evidence.detail, 60) or "it gave no reason"
            return Verdict(
                Readiness.FAILED, f"{_source(evidence)} that it failed: {why}", FAILURE - evidence.age
            )
    return None


def _rules(sight: Sight, profile: Profile, shown: Detection | None) -> Verdict | None:
    """What the profile's state rules say; None where they leave it to the rules for any program."""
    if shown is not None and shown.state == "working":
        return _by(shown, Readiness.WORKING, "it shows that it works")
    if shown is not None and shown.state == "draft":
        return replace(_by(shown, Readiness.WORKING, "a text stands in its input"), draft=True)
    if shown is not None and shown.state == "failed":
        went_well = any(one.source == "hooks" and one.state == "ready" for one in sight.evidence)
        if sight.quiet < FAILURE and not went_well:  # else the error is of an earlier turn
            return replace(_by(shown, Readiness.FAILED, "it shows an error"), wait=FAILURE - sight.quiet)
        shown = detect(Look(sight.drawn, sight.title), profile, ("ready",))
    if any(rule.state == "ready" for rule in profile.states):
        if shown is None:
            return _working(f"nothing on its screen says what it does (no rule of {profile.name!r} holds)")
        if sight.tty.canonical:
            return _working("its terminal takes lines: its own input is not there")
        if sight.quiet < SCREEN_QUIET:
            return _working(f"it drew within the last {SCREEN_QUIET} s", SCREEN_QUIET - sight.quiet)
        return _by(shown, Readiness.READY, "it shows its input")
    return None


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
    reports = any(evidence.state == "ready" for evidence in sight.evidence)
    if not reports and not sight.bracketed_paste and not _match(profile.prompts, sight.unfinished):
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
        rules, rows = (
            (*profile.decisions, *profile.dialogs),
            drawn[-(NEAR_ROWS if profile.states else DIALOG_ROWS) :],
        )
    for row in rows:
        if rule := _match(rules, row):
            return Verdict(Readiness.PROMPTING, f"{_show(row)} reads as a dialog (rule {rule})")
    return None


def _by(shown: Detection, state: Readiness, what: str) -> Verdict:
    # A line of words tells more than a border.
    line = next((line for line in shown.lines[::-1] if any(map(str.isalnum, line))), shown.lines[0])
    reason = f"{what}: {_show(line)} (rule {shown.rule!r})"
    return Verdict(state, reason, kind=shown.kind, rule=shown.rule, lines=shown.lines)


def _source(evidence: Evidence) -> str:
    return "its hooks say" if evidence.source == "hooks" else "it reports"


def _match(rules: Iterable[re.Pattern[str]], text: str) -> str | None:
    """The first rule that finds itself in `text`."""
    return next((rule.pattern for rule in rules if rule.search(text)), None) if text.strip() else None


def _show(text: str) -> str:
    return f"{one_line(text, 60)!r}"


def _unsafe(reason: str) -> Verdict:
    return Verdict(Readiness.UNSAFE, reason)


def _working(reason: str, wait: float | None = None) -> Verdict:
    return Verdict(Readiness.WORKING, reason, wait)
