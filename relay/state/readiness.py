"""Readiness: is it safe to type into the agent now? Judged from its terminal, by rules that are data.

ready       the program waits for typed text
working     it computes or prints, has not read earlier input, or has unsent text in its input
prompting   it asks for a decision or a secret; typed text would answer it
failed      it reports an error; nothing is typed for a while
unsafe      typed text would be executed, or would reach another program

The first source that knows the state decides:

    the terminal                          another program in the foreground, no echo
    a dialog on the screen                the profile's state rules
    the agent's hooks                     a lease, which newer evidence on the screen ends
    its status reports                    OSC 7501
    the screen                            the profile's state rules, and silence
    the rules for any program             if the profile has no state rules

A wrong *ready* is the worst error: relay would type into a dialog. So if a profile has a rule for ready, that
rule must hold, whatever the other sources say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from relay.agents.profile import InputStyle, Profile, PromptKind
from relay.dataclass import dataclass, replace
from relay.shim.process_wait import SCREEN_QUIET, Wait
from relay.state.detection import Detection, ScreenSnapshot, detect
from relay.state.evidence import Evidence
from relay.state.input_box import find_input
from relay.state.reasons import UNSENT
from relay.state.signs import Sign, find_sign, is_menu
from relay.terminal.tty_state import TtyState
from relay.text import one_line

QUIET = 0.25
"""Seconds without output after which a line program counts as waiting if the kernel does not report it."""

PROMPT_LEASE = 2.0
"""Seconds for which *prompting* from hooks holds without a dialog on the screen: the agent draws one within
milliseconds, and after an answer, no hook fires until the tool has ended."""

WORK_LEASE = 3.0
"""Seconds of silence with the input on the screen after which *working* from hooks no longer holds: Esc fires
no Stop, and a working agent animates."""

REPORT_LEASE = 30.0
"""WORK_LEASE for status reports: the reporting process may have been killed."""

FAILURE = 60.0
"""Seconds for which nothing is typed into a failed agent."""

CHOICE_ROWS = 3
"""Rows at the bottom that may hold a line program's choice: those above have been answered."""


QUOTED = "dialog above the input"
"""The rule that defers typing because of a dialog, or a quoted one, above the agent's last words."""

_SIGNS = {"prompting": "it shows a dialog", "working": "its screen shows that it is working"}


class Readiness(StrEnum):
    """The states of a verdict."""

    READY = "ready"
    WORKING = "working"
    PROMPTING = "prompting"
    FAILED = "failed"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A state, and the reason for it in words.

    wait:  seconds until time alone may change the state; None if only new evidence can.
    kind:  the kind of prompt if prompting.
    rule:  the name of the state rule that decided; "" if none did.
    lines: the rows that matched that rule.
    draft: if working: the agent is idle, but there is unsent text in its input.
    """

    state: Readiness
    reason: str
    wait: float | None = None
    kind: PromptKind | None = None
    rule: str = ""
    lines: tuple[str, ...] = ()
    draft: bool = False


@dataclass(frozen=True, slots=True)
class TerminalSnapshot:
    """The agent's terminal at one moment.

    wait:       the kind of wait that the kernel reports; read before everything else.
    same:       True if the program has been asleep since before the last text was typed.
    quiet:      seconds since the program's last output or the last typing, whichever is later.
    unfinished: the cursor's line, without what relay has typed.
    rows:       the visible rows, without what relay has typed.
    nap:        the sleep in which the program reads its terminal (process_wait.Waiting), or None.
    drawn:      all visible rows.
    title:      the title that the program has set (OSC 0, OSC 2).
    cursor:     (x, y), zero-based; None if unknown.
    suggested:  as in ScreenSnapshot.
    evidence:   the latest evidence from its hooks and status reports.
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
    cursor: tuple[int, int] | None = None
    suggested: bool = True
    evidence: tuple[Evidence, ...] = ()


def judge(terminal: TerminalSnapshot, profile: Profile) -> Verdict:
    """Return the agent's state. Only *ready* allows typing."""
    shown = _shown(terminal, profile)
    if found := _danger(terminal, profile, shown):
        return found
    if terminal.unwritten:
        return working("it has not read the previous input")
    if terminal.output_pending:
        return working("it is printing")
    if found := _reported(terminal, shown) or _rules(terminal, profile, shown):
        return found
    return _line_program(terminal) if terminal.tty.canonical else _screen_program(terminal, profile, shown)


def danger(terminal: TerminalSnapshot, profile: Profile, before: Iterable[str] = ()) -> Verdict | None:
    """Return the verdict that forbids typing however quiet the program is, or None.

    before: the rows drawn before the typing began, which are not signs of a dialog.
    """
    shown = _shown(terminal, profile)
    if shown is not None and shown.state == "draft":
        sign = _sign(terminal, profile, shown, before)
        shown = sign if sign is not None and sign.state == "prompting" else shown
    return _danger(terminal, profile, shown)


def _shown(terminal: TerminalSnapshot, profile: Profile) -> Detection | None:
    """Return what the screen shows; an empty input below a sign of a dialog or of work does not count."""
    if terminal.tty.canonical and not profile.states:
        return None  # a line program: its output is a conversation
    shown = detect(_screen(terminal), profile)
    if shown is not None and shown.state != "ready":
        return shown
    return _sign(terminal, profile, shown) or shown


def _screen(terminal: TerminalSnapshot) -> ScreenSnapshot:
    rows = terminal.drawn or terminal.rows
    return ScreenSnapshot(rows, terminal.title, terminal.cursor, suggested=terminal.suggested)


def _sign(
    terminal: TerminalSnapshot, profile: Profile, shown: Detection | None, before: Iterable[str] = ()
) -> Detection | None:
    """Return the sign of a dialog or of work around the input, or on a screen without an input."""
    screen, style = _screen(terminal), profile.input or InputStyle()
    box = None if profile.input is None or shown is None else find_input(screen.rows, style, screen.cursor)
    others = set(terminal.rows)
    top, bottom = (len(screen.rows), len(screen.rows)) if box is None else (box.top, box.bottom + 1)
    above, below = (
        [row for row in part if row in others] for part in (screen.rows[:top], screen.rows[bottom:])
    )
    above = [row for row in _since(above, before) if not _echo(row, profile)]
    found = find_sign(_since(below, before), bullets=style.bullets)
    if found is None and (shown is None or not _turn_over(terminal)):
        idle = any(title.search(terminal.title) for title in style.idle)
        found = find_sign(above, bullets=style.bullets, loose=not profile.states, idle=idle)
        if found is None and (row := next((row for row in above if _match(profile.dialogs, row)), None)):
            found = Sign("prompting", "dialogs", (row.strip(),))
    if found is None and not profile.states and is_menu(screen.rows[:bottom]):
        found = Sign("prompting", "list of options", (screen.rows[bottom - 1].strip(),))
    if found is None:
        return None
    if found.state == "prompting" and (found.last or shown is None):
        return Detection("prompting", PromptKind.OTHER, found.name, found.lines)
    return Detection("working", None, found.name if found.state == "working" else QUOTED, found.lines)


def _since(rows: Iterable[str], before: Iterable[str]) -> list[str]:
    """Return `rows` minus those of `before` as multisets, removed from the top."""
    old, found = Counter(before), list[str]()
    for row in rows:
        if old[row] > 0:
            old[row] -= 1
        else:
            found.append(row)
    return found


def _echo(row: str, profile: Profile) -> bool:
    """Return True if `row` shows typed text or a tool's output."""
    return any(rule.search(row) for rule in profile.echo.lines)


def _turn_over(terminal: TerminalSnapshot) -> bool:
    """Return True if the agent's own evidence says that its turn is over: it may have quoted a dialog."""
    return any(evidence.state == "ready" for evidence in terminal.evidence)


def _danger(terminal: TerminalSnapshot, profile: Profile, shown: Detection | None) -> Verdict | None:
    tty = terminal.tty
    if profile.inject == "never":
        return _unsafe(
            f"the profile {profile.name!r} forbids typing into this program, which "
            'would execute the text; set inject = "auto" there to allow it'
        )
    if not tty.foreground:
        return working("no program is in the terminal's foreground yet")
    if tty.foreground != tty.agent_group:
        return _unsafe("another program is in the terminal's foreground")
    if shown is not None and shown.state == "prompting":
        return _by(shown, Readiness.PROMPTING, _SIGNS["prompting"])
    if terminal.alternate and not profile.fullscreen and not (profile.states and shown):
        return (_drew(terminal) if profile.states else None) or _unsafe(
            "it shows an unknown full-screen interface"
        )
    if tty.canonical and not tty.echo:
        return _question("its terminal does not echo: it asks for a password")
    if found := _prompting(terminal, shown):
        return found
    if shown is not None:
        return None
    ordinary = bool(_match(profile.prompts, terminal.unfinished))
    if not ordinary and (rule := _match(profile.executes, terminal.unfinished)):
        return _unsafe(
            f"the line {_show(terminal.unfinished)} is the prompt of a shell or language (rule {rule})"
        )
    return _asking(terminal, profile, ordinary)


def _prompting(terminal: TerminalSnapshot, shown: Detection | None) -> Verdict | None:
    """Return *prompting* if hooks or reports say so and the screen shows nothing newer."""
    for evidence in terminal.evidence:
        if evidence.state != "prompting":
            continue
        if evidence.source == "hooks" and evidence.age >= PROMPT_LEASE and _moved_on(terminal, shown):
            continue
        if evidence.source == "status" and evidence.kind is PromptKind.OTHER and _failed(terminal, shown):
            continue  # claude 2.1.330 reports "blocked" when the API has refused its key
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


def _failed(terminal: TerminalSnapshot, shown: Detection | None) -> bool:
    """Return True if the agent's hooks say that its turn has failed, and the screen shows its input again."""
    at_input = shown is not None and shown.state in {"ready", "failed"}
    return at_input and any(one.source == "hooks" and one.state == "failed" for one in terminal.evidence)


def _moved_on(terminal: TerminalSnapshot, shown: Detection | None) -> bool:
    """Return True if the screen shows that a dialog is over: work, or the input for PROMPT_LEASE."""
    return shown is not None and (shown.state != "ready" or terminal.quiet >= PROMPT_LEASE)


def _reported(terminal: TerminalSnapshot, shown: Detection | None) -> Verdict | None:
    """Return what hooks and reports say, except *ready*, which the screen must confirm."""
    state = "" if shown is None else shown.state
    for evidence in sorted(terminal.evidence, key=lambda one: one.source):  # hooks before status
        if evidence.state == "working":
            lease = WORK_LEASE if evidence.source == "hooks" else REPORT_LEASE
            at_input = state in {"ready", "failed"}  # an error ends a turn without a hook
            if not at_input or terminal.quiet < lease:
                wait = lease - terminal.quiet if at_input else None
                return working(f"{_source(evidence)} that it works", wait)
        elif evidence.state == "failed" and evidence.age < FAILURE and state != "working":
            why = one_line(evidence.detail, 60) or "it gave no reason"
            reason = f"{_source(evidence)} that it failed: {why}"
            return Verdict(Readiness.FAILED, reason, FAILURE - evidence.age)
    return None


def _rules(terminal: TerminalSnapshot, profile: Profile, shown: Detection | None) -> Verdict | None:
    """Return what the profile's state rules say, or None if the rules for any program decide."""
    if shown is not None and shown.state == "working":
        what = "there seems to be a dialog above its input" if shown.rule == QUOTED else _SIGNS["working"]
        return _by(shown, Readiness.WORKING, what)
    if shown is not None and shown.state == "draft":
        return replace(_by(shown, Readiness.WORKING, UNSENT), draft=True)
    if shown is not None and shown.state == "failed":
        went_well = any(one.source == "hooks" and one.state == "ready" for one in terminal.evidence)
        if terminal.quiet < FAILURE and not went_well:  # else the error belongs to an earlier turn
            return replace(_by(shown, Readiness.FAILED, "it shows an error"), wait=FAILURE - terminal.quiet)
        screen, error = _screen(terminal), set(shown.lines)
        shown = detect(screen, profile, ("ready",))
        known = [row for row in screen.rows if row.strip() in error]
        if shown is not None and (sign := _sign(terminal, profile, shown, known)):
            return _by(sign, Readiness(sign.state), _SIGNS[sign.state])
    assumed = profile.input is not None and profile.input.assumed
    if not profile.says_ready or (shown is None and assumed and terminal.tty.canonical):
        return None
    if shown is None:
        return working(f"nothing on its screen shows its state (no rule of {profile.name!r} matches)")
    if terminal.tty.canonical:
        return working("its terminal is in line mode, so its own input box is not active")
    return _drew(terminal) or _by(shown, Readiness.READY, "its input box is visible")


def _line_program(terminal: TerminalSnapshot) -> Verdict:
    if terminal.wait is Wait.BUSY:
        return working("it is not waiting for its terminal")
    if terminal.wait is Wait.READ and not terminal.same:
        return Verdict(Readiness.READY, "it is waiting to read its terminal")
    if terminal.quiet < QUIET:
        return working(f"it printed within the last {QUIET} s", QUIET - terminal.quiet)
    return Verdict(Readiness.READY, f"it has been quiet for {QUIET} s and its terminal is in line mode")


def _drew(terminal: TerminalSnapshot) -> Verdict | None:
    left = SCREEN_QUIET - terminal.quiet
    return working(f"it drew within the last {SCREEN_QUIET} s", left) if left > 0 else None


def _screen_program(terminal: TerminalSnapshot, profile: Profile, shown: Detection | None) -> Verdict:
    if found := _drew(terminal):
        return found
    if terminal.wait is Wait.BUSY:
        return working("it is not waiting for its terminal")
    if shown is None and not _match(profile.prompts, terminal.unfinished):
        return _unsafe("it shows no input box that relay knows")
    return Verdict(Readiness.READY, f"it has been quiet for {SCREEN_QUIET} s and shows an input box")


def _asking(terminal: TerminalSnapshot, profile: Profile, ordinary: bool) -> Verdict | None:
    """Return *prompting* if the program asks something that ordinary text must not answer."""
    line = terminal.unfinished
    if is_menu(terminal.rows):
        return _question("it shows a list to choose from")
    if not ordinary and (rule := _match((*profile.decisions, *profile.questions), line)):
        return _question(f"{_show(line)} looks like a question (rule {rule})")
    if terminal.tty.canonical:
        # Earlier lines have been answered, and other questions are part of the conversation.
        drawn = [row for row in terminal.rows if row.strip()]
        for row in drawn[-CHOICE_ROWS if line.strip() else -1 :]:
            if rule := _match(profile.decisions, row):
                return _question(f"{_show(row)} looks like a dialog (rule {rule})")
    return None


def _by(shown: Detection, state: Readiness, what: str) -> Verdict:
    # A line with words says more than a border.
    line = next((line for line in shown.lines[::-1] if any(map(str.isalnum, line))), shown.lines[0])
    reason = f"{what}: {_show(line)} (rule {shown.rule!r})"
    return Verdict(state, reason, kind=shown.kind, rule=shown.rule, lines=shown.lines)


def _source(evidence: Evidence) -> str:
    return "its hooks say" if evidence.source == "hooks" else "it reports"


def _match(rules: Iterable[re.Pattern[str]], text: str) -> str | None:
    """Return the pattern of the first rule that matches in `text`, or None."""
    return next((rule.pattern for rule in rules if rule.search(text)), None) if text.strip() else None


def _show(text: str) -> str:
    return f"{one_line(text, 60)!r}"


def _question(reason: str) -> Verdict:
    return Verdict(Readiness.PROMPTING, reason, kind=PromptKind.OTHER)


def _unsafe(reason: str) -> Verdict:
    return Verdict(Readiness.UNSAFE, reason)


def working(reason: str, wait: float | None = None) -> Verdict:
    return Verdict(Readiness.WORKING, reason, wait)
