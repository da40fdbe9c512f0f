"""Show what relay makes of a recorded terminal.

The recording (asciicast version 2, as asciinema writes it) is read as a live session would be, at its own
speed but without waiting: the directives that the agent gave, in order, with their times. Known namespaces
are the built-in ones. Input in the recording counts as typed, so that its echo is told from what the agent
said. The profile is that of the recorded command, or --agent's; see `relay agents`.

With --json: {"directives": [{"namespace", "target", "body", "time", "unclosed"}], "states": []}. Times are
seconds of the recording. States are not read from recordings yet: the list is empty.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from relay import profile, recording
from relay.directives.directive import Directive
from relay.directives.grammar import DECORATION, Grammar
from relay.home import Home
from relay.hooks.registry import Registry
from relay.namespaces import install
from relay.profile import Profile
from relay.readers.auto import AutoReader
from relay.readers.line import Line
from relay.recording import Recording
from relay.text import count, one_line, printable_json, visible

TICK = 0.02
"""Seconds between two looks at the screen, as in a session (design, section 3)."""

QUIET = 2.0
"""Seconds without output after which the program is taken to wait for input: a recording cannot tell."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=Path, metavar="RECORDING", help="an asciicast file")
    parser.add_argument("--agent", metavar="PROFILE", help="read it as this kind of agent")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    recorded = recording.read(args.recording)
    home = Home.from_env()
    if args.agent is not None:
        chosen = profile.load(args.agent, home)
    else:
        chosen = profile.for_command(_words(recorded.command), home)
    found = directives(recorded, chosen)
    if args.json:
        print(printable_json({"directives": [_as_json(one) for one in found], "states": []}, indent=2))
    else:
        for one in found:
            print(_shown(one))
        print(f"{count(len(found), 'directive')} (profile {chosen.name})")
    return 0


def directives(recorded: Recording, chosen: Profile) -> list[Directive]:
    """The directives in a recording, read with the rules of a profile."""
    registry = Registry()
    install(registry)
    decoration = DECORATION if chosen.decoration is None else chosen.decoration.pattern
    player = _Player(
        AutoReader(recorded.columns, recorded.rows, kind=chosen.reader, marker=chosen.prefix.encode()),
        Grammar(registry.knows, prefix=chosen.prefix, decoration=decoration),
    )
    for event in recorded.events:
        player.advance(event.time)
        match event.kind:
            case "o":
                player.said(player.reader.feed(event.bytes, event.time))
                player.quiet_since = event.time
            case "i":
                player.reader.typed(event.bytes, event.time, echo=True)
            case "r":
                player.said(player.reader.resize(*event.size, event.time))
    player.finish()
    return player.found


class _Player:
    """Feeds a reader and a grammar along the time of a recording."""

    def __init__(self, reader: AutoReader, grammar: Grammar) -> None:
        self.reader = reader
        self.grammar = grammar
        self.found: list[Directive] = []
        self.quiet_since: float | None = None
        self._now = 0.0

    def said(self, lines: list[Line]) -> None:
        for line in lines:
            self.found += self.grammar.line(line)

    def advance(self, time: float) -> None:
        """Let the time pass until `time`, with nothing happening."""
        while (self.reader.settling or self.quiet_since is not None) and self._now + TICK < time:
            self._now += TICK
            self.said(self.reader.tick(self._now))
            if self.quiet_since is not None and self._now - self.quiet_since >= QUIET:
                self.quiet_since = None
                self.said(self.reader.waiting(self._now))
                self.found += self.grammar.turn_end(self._now)
        self._now = time

    def finish(self) -> None:
        self.said(self.reader.close(self._now))
        self.found += self.grammar.turn_end(self._now)


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
