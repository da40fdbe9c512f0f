"""Show how relay reads a recorded terminal, or a single rendered screen.

relay reads a recording (an asciicast of version 2 or 3) like a live session, at the recorded
speed but without waiting: the agent's directives and states, in order, with their times. Only the built-in
namespaces count. Input in the recording counts as typed, so that relay can tell its echo from what the agent
said. The profile is that of the recorded command, or --agent's; see `relay agents`.

--screen FILE is the text of a terminal's screen ("-": standard input), one row per line, and counts as quiet.
A first line `# title: TITLE` sets the terminal's title; then `# cursor: X,Y` may set the cursor, zero-based,
and `# record: over` says that the turn is over by the agent's own record.

With --json, of a recording: {"directives": [{"namespace", "target", "body", "time", "unclosed"}], "states":
[{"time", "state", "prompt", "rule", "lines"}]}, each state from its time on; of a screen: {"state",
"prompt", "rule", "lines"}. Times are seconds of the recording. The state is ready, working, prompting,
failed or unsafe; prompt is permission, plan_approval, question, other or null; rule is the profile's rule
that decided, or "", and lines the rows that it matched.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path

from relay.agents import catalog
from relay.agents.profile import Profile
from relay.builtin import install
from relay.dataclass import dataclass, replace
from relay.directives.directive import Directive
from relay.directives.grammar import Grammar
from relay.directives.pipeline import OutputPipeline, play
from relay.errors import UsageError
from relay.home import Home
from relay.hooks.registry import Registry
from relay.readers.auto import AutoReader
from relay.recording.asciicast import Cast
from relay.shim.process_wait import Wait
from relay.state.evidence import Evidence
from relay.state.readiness import TerminalSnapshot, Verdict, judge
from relay.terminal.screen import VirtualScreen
from relay.terminal.tty_state import TtyState
from relay.text import count, one_line, printable_json, visible

_QUIET = 2.0  # seconds without output after which the program counts as waiting for input
_STATE_CHECK_EVERY = 0.1  # seconds between two checks of the state
_STILL = 5.0  # seconds a single screen counts as quiet: longer than any pause, shorter than a failure


@dataclass(frozen=True, slots=True)
class ObservedState:
    """The state from `time` on, in seconds of the recording."""

    time: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Inspection:
    """The directives and states in a recording, in order."""

    directives: list[Directive]
    states: list[ObservedState]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=Path, nargs="?", metavar="RECORDING", help="an asciicast file")
    parser.add_argument("--screen", metavar="FILE", help="a rendered screen, instead of a recording")
    parser.add_argument("--agent", metavar="PROFILE", help="treat it as this kind of agent")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env()
    if (args.recording is None) == (args.screen is None):
        raise UsageError("give either a RECORDING or --screen FILE.")
    if args.screen is not None:
        if args.agent is None:
            raise UsageError(
                "a screen does not identify its agent: add --agent PROFILE (`relay agents` lists them)."
            )
        try:
            text = sys.stdin.read() if args.screen == "-" else Path(args.screen).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the screen {args.screen}: {error}") from None
        verdict = inspect_screen(text, catalog.load(args.agent, home))
        print(printable_json(_state(verdict), indent=2) if args.json else _described(verdict))
        return 0
    cast = Cast(args.recording, strict=True)
    if args.agent is not None:
        profile = catalog.load(args.agent, home)
    else:
        try:
            words = shlex.split(cast.header.command)
        except ValueError:
            words = cast.header.command.split()
        profile = catalog.for_command(words, home)
    found = inspect(cast, profile)
    if args.json:
        keys = ("namespace", "target", "body", "time", "unclosed")
        directives = [
            {key: getattr(one, key) for key in keys} | {"time": round(one.time, 3)}
            for one in found.directives
        ]
        states = [{"time": round(one.time, 3), **_state(one.verdict)} for one in found.states]
        print(printable_json({"directives": directives, "states": states}, indent=2))
    else:
        lines = [(one.time, _shown(one)) for one in found.directives]
        lines += [(one.time, f"{one.time:9.3f}  {_described(one.verdict)}") for one in found.states]
        for _, line in sorted(lines, key=lambda entry: entry[0]):
            print(line)
        print(f"{count(len(found.directives), 'directive')} (profile {profile.name})")
    return 0


def inspect(cast: Cast, profile: Profile) -> Inspection:
    registry = Registry()
    install(registry)
    reader = AutoReader(
        cast.header.columns,
        cast.header.rows,
        kind=profile.reader,
        marker=profile.prefix.encode(),
        echo_style=profile.echo,
        block_end=profile.block_end,
        settle=profile.settle,
        code_style=profile.code,
    )
    grammar = Grammar.of_terminal(registry.knows, profile, prefix=profile.prefix)
    pipeline = OutputPipeline(reader, grammar, quiet=_QUIET)
    directives: list[Directive] = []
    states: list[ObservedState] = []
    next_look = 0.0
    for reading in play(cast, pipeline):
        directives += reading.directives
        if reader.screen is None or pipeline.now < next_look:
            continue
        next_look = pipeline.now + _STATE_CHECK_EVERY
        sight = _sight(
            [row.text for row in reader.screen.rows()],
            reader.screen.title,
            pipeline.now - pipeline.last_output,
            lines=reader.kind == "lines",
            unfinished=reader.unfinished(),
            screen=reader.screen,
        )
        verdict = judge(sight, profile)
        last = states[-1].verdict if states else None
        if last is None or (last.state, last.kind, last.rule) != (verdict.state, verdict.kind, verdict.rule):
            states.append(ObservedState(pipeline.now, verdict))
    return Inspection(directives, states)


def inspect_screen(text: str, profile: Profile) -> Verdict:
    """Return the state that a rendered screen shows: rows, after any lines `# KEY: VALUE` (see above)."""
    rows = text.splitlines()
    keys = {"title": "", "cursor": "", "record": ""}
    while rows and (found := re.match(rf"# ({'|'.join(keys)}):(.*)", rows[0])):
        keys[found[1]] = found[2].strip()
        rows.pop(0)
    sight = _sight([row.rstrip() for row in rows], keys["title"], _STILL)
    if cursor := re.fullmatch(r"(\d+),(\d+)", keys["cursor"]):
        sight = replace(sight, cursor=(int(cursor[1]), int(cursor[2])))
    if keys["record"] == "over":
        sight = replace(sight, evidence=(Evidence("hooks", "ready"),))
    return judge(sight, profile)


def _sight(
    rows: list[str],
    title: str,
    quiet: float,
    *,
    lines: bool = False,
    unfinished: str | None = None,
    screen: VirtualScreen | None = None,
) -> TerminalSnapshot:
    """Return a live session's view of the screen, with harmless values for what only the kernel knows."""
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
        cursor=None if screen is None else screen.cursor,
        suggested=False,  # which keys the user pressed is not known
    )


def _state(verdict: Verdict) -> dict[str, object]:
    lines = list(verdict.lines)
    return {"state": verdict.state, "prompt": verdict.kind, "rule": verdict.rule, "lines": lines}


def _described(verdict: Verdict) -> str:
    kind = f" ({verdict.kind})" if verdict.kind else ""
    return f"{verdict.state}{kind}: {visible(verdict.reason)}"


def _shown(one: Directive) -> str:
    where = f"{one.time:9.3f}  @{one.namespace}:{visible(one.target)}"
    return f"{where} {one_line(one.body, 100)}" + ("  (never ended)" if one.unclosed else "")
