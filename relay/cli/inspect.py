"""Show what relay makes of a recorded terminal, or of one rendered screen.

A recording (asciicast version 2, as asciinema writes it) is read as a live session would be, at its own
speed but without waiting: the directives that the agent gave and the states it was in, in order, with their
times. Known namespaces are the built-in ones. Input in the recording counts as typed, so that its echo is
told from what the agent said. The profile is that of the recorded command, or --agent's; see `relay agents`.

--screen FILE is text as a terminal shows it ("-": standard input), a row a line, and counts as quiet. A
first line `# title: TITLE` gives the terminal's title.

With --json, of a recording: {"directives": [{"namespace", "target", "body", "time", "unclosed"}], "states":
[{"time", "state", "prompt", "rule", "lines"}]}, each state from its time on; of a screen: {"state",
"prompt", "rule", "lines"}. Times are seconds of the recording. The state is ready, working, prompting,
failed or unsafe; prompt is permission, plan_approval, question, other or null; rule is the profile's rule
that decided, or "", and lines the rows that made it hold.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from relay import recording
from relay.agents import catalog
from relay.agents.profile import Profile
from relay.builtin import install
from relay.directives.directive import Directive
from relay.directives.grammar import DECORATION, Grammar
from relay.errors import UsageError
from relay.home import Home
from relay.hooks.registry import Registry
from relay.readers.auto import AutoReader
from relay.readers.line import Line
from relay.recording import Recording
from relay.state.port import TtyState
from relay.state.process_wait import Wait
from relay.state.readiness import TerminalSnapshot, Verdict, judge
from relay.text import count, one_line, printable_json, visible

TICK = 0.02
"""Seconds between two looks at the screen, as in a session (design, section 3)."""

QUIET = 2.0
"""Seconds without output after which the program is taken to wait for input: a recording cannot tell."""


LOOK = 0.1
"""Seconds between two looks at the state."""

STILL = 5.0
"""Seconds for which a rendered screen counts as quiet: longer than any pause, shorter than FAILURE."""


@dataclass(frozen=True, slots=True)
class Change:
    """The state from `time` on, in seconds of the recording."""

    time: float
    verdict: Verdict


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=Path, nargs="?", metavar="RECORDING", help="an asciicast file")
    parser.add_argument("--screen", metavar="FILE", help="a rendered screen, in place of a recording")
    parser.add_argument("--agent", metavar="PROFILE", help="read it as this kind of agent")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    if (args.recording is None) == (args.screen is None):
        raise UsageError("give either a RECORDING or --screen FILE.")
    if args.screen is not None:
        if args.agent is None:
            raise UsageError("a screen does not say whose it is: add --agent PROFILE (`relay agents`).")
        verdict = look_at(_read(args.screen), catalog.load(args.agent, home))
        print(printable_json(_state(verdict), indent=2) if args.json else _told(verdict))
        return 0
    recorded = recording.read(args.recording)
    if args.agent is not None:
        chosen = catalog.load(args.agent, home)
    else:
        chosen = catalog.for_command(_words(recorded.command), home)
    player = play(recorded, chosen)
    if args.json:
        found = [_as_json(one) for one in player.found]
        changes = [{"time": round(one.time, 3), **_state(one.verdict)} for one in player.changes]
        print(printable_json({"directives": found, "states": changes}, indent=2))
    else:
        lines = [(one.time, _shown(one)) for one in player.found]
        lines += [(one.time, f"{one.time:9.3f}  {_told(one.verdict)}") for one in player.changes]
        for _, line in sorted(lines, key=lambda entry: entry[0]):
            print(line)
        print(f"{count(len(player.found), 'directive')} (profile {chosen.name})")
    return 0


def directives(recorded: Recording, chosen: Profile) -> list[Directive]:
    """The directives in a recording, read with the rules of a profile."""
    return play(recorded, chosen).found


def states(recorded: Recording, chosen: Profile) -> list[Change]:
    """The states in a recording, each from its time on, by the rules of a profile."""
    return play(recorded, chosen).changes


def look_at(text: str, chosen: Profile) -> Verdict:
    """The state that a rendered screen shows: rows, perhaps after a line `# title: TITLE`."""
    rows = text.splitlines()
    title = ""
    if rows and rows[0].startswith("# title:"):
        title = rows.pop(0).removeprefix("# title:").strip()
    return judge(_sight([row.rstrip() for row in rows], title, STILL), chosen)


def play(recorded: Recording, chosen: Profile) -> Player:
    """Read a recording with the rules of a profile."""
    player = Player(recorded, chosen)
    for event in recorded.events:
        player.advance(event.time)
        match event.kind:
            case "o":
                player.output(event.bytes)
            case "i":
                player.reader.typed(event.bytes, event.time, echo=True)
            case "r":
                player.said(player.reader.resize(*event.size, event.time))
    player.finish()
    return player


class Player:
    """Feeds a reader and a grammar along the time of a recording, and looks at the state."""

    def __init__(self, recorded: Recording, chosen: Profile) -> None:
        registry = Registry()
        install(registry)
        decoration = DECORATION if chosen.decoration is None else chosen.decoration.pattern
        self.reader = AutoReader(
            recorded.columns,
            recorded.rows,
            kind=chosen.reader,
            marker=chosen.prefix.encode(),
            echo_style=chosen.echo,
            code_style=chosen.code,
        )
        self.found: list[Directive] = []
        self.changes: list[Change] = []
        self._grammar = Grammar(registry.knows, prefix=chosen.prefix, decoration=decoration)
        self._profile = chosen
        self._quiet_since: float | None = None
        self._last_output = 0.0
        self._next_look = 0.0
        self._now = 0.0

    def output(self, data: bytes) -> None:
        self.said(self.reader.feed(data, self._now))
        self._quiet_since = self._last_output = self._now

    def said(self, lines: list[Line]) -> None:
        for line in lines:
            self.found += self._grammar.line(line)

    def advance(self, time: float) -> None:
        """Let the time pass until `time`, with nothing happening."""
        while (self.reader.settling or self._quiet_since is not None) and self._now + TICK < time:
            self._now += TICK
            self.said(self.reader.tick(self._now))
            if self._now >= self._next_look:
                self._look()
            if self._quiet_since is not None and self._now - self._quiet_since >= QUIET:
                self._quiet_since = None
                self.said(self.reader.waiting(self._now))
                self.found += self._grammar.turn_end(self._now)
        self._now = time
        if self._now >= self._next_look:
            self._look()

    def finish(self) -> None:
        self.said(self.reader.close(self._now))
        self.found += self._grammar.turn_end(self._now)

    def _look(self) -> None:
        self._next_look = self._now + LOOK
        screen = self.reader.screen
        if screen is None:
            return
        sight = _sight(
            [row.text for row in screen.rows()],
            screen.title,
            self._now - self._last_output,
            lines=self.reader.kind == "lines",
            unfinished=self.reader.unfinished(),
        )
        verdict = judge(sight, self._profile)
        last = self.changes[-1].verdict if self.changes else None
        if last is None or (last.state, last.kind, last.rule) != (verdict.state, verdict.kind, verdict.rule):
            self.changes.append(Change(self._now, verdict))


def _sight(
    rows: list[str], title: str, quiet: float, *, lines: bool = False, unfinished: str | None = None
) -> TerminalSnapshot:
    """What a live session would see; what only a terminal and the kernel know is taken to be in order."""
    drawn = tuple(rows)
    return TerminalSnapshot(
        tty=TtyState(canonical=lines, echo=lines, icrnl=True, foreground=1, agent_group=1),
        wait=Wait.UNKNOWN,
        same=False,
        quiet=quiet,
        output_pending=False,
        unwritten=0,
        bracketed_paste=True,
        alternate=False,
        unfinished=unfinished if unfinished is not None else next((row for row in rows[::-1] if row), ""),
        rows=drawn,
        drawn=drawn,
        title=title,
    )


def _read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the screen {path}: {error}") from None


def _state(verdict: Verdict) -> dict[str, object]:
    return {
        "state": verdict.state,
        "prompt": verdict.kind,
        "rule": verdict.rule,
        "lines": list(verdict.lines),
    }


def _told(verdict: Verdict) -> str:
    kind = f" ({verdict.kind})" if verdict.kind else ""
    return f"{verdict.state}{kind}: {visible(verdict.reason)}"


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _as_json(one: Directive) -> dict[str, object]:
    return {
        "namespace": one.namespace,
        "target": one.target,
        "body": one.body,
        "time": round(one.time, 3),
        "unclosed": one.unclosed,
    }


def _shown(one: Directive) -> str:
    where = f"{one.time:9.3f}  @{one.namespace}:{visible(one.target)}"
    return f"{where} {one_line(one.body, 100)}" + ("  (never closed)" if one.unclosed else "")
