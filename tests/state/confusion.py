"""How often the shipped profiles are right: recordings and rendered screens of real agents, by state.

    python tests/state/confusion.py            prints the table of README.md and each miss
    python tests/state/confusion.py --write    writes it into that page

A screen is `patterns/screens/AGENT/STATE-WHAT.txt`, for a dialog `prompting-KIND-WHAT.txt`: what an agent's
terminal showed, with its title in a first line `# title: ...`.  The moments of a recording are in its
`.expected.json`.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relay.agents import catalog
from relay.agents.profile import Profile
from relay.cli.inspect import inspect, inspect_screen
from relay.home import Home
from relay.recording.asciicast import Cast
from relay.state.readiness import Verdict

TESTS = Path(__file__).parent.parent
PAGE = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- states:begin -->", "<!-- states:end -->"
STATES = ("ready", "working", "prompting", "failed")
_NOWHERE = Home(Path("/nonexistent"), Path("/nonexistent"), Path("/nonexistent"))
_SCREEN = re.compile(r"(?P<state>[a-z]+)-(?:(?P<kind>permission|plan_approval|question|other)-)?(?P<what>.+)")


@functools.cache
def _profile(name: str) -> Profile:
    return catalog.load(name, _NOWHERE)


@dataclass(frozen=True)
class Case:
    """One moment of one agent: its state, and relay's verdict. `kind`: that of a dialog, otherwise ""."""

    agent: str
    name: str
    state: str
    kind: str
    verdict: Verdict

    @property
    def hit(self) -> bool:
        return self.verdict.state == self.state

    @property
    def kind_hit(self) -> bool:
        return not self.kind or self.verdict.kind == self.kind


def screens(folder: Path = TESTS.parent / "patterns" / "screens") -> Iterator[Case]:
    for path in sorted(folder.glob("*/*.txt")):
        match = _SCREEN.fullmatch(path.stem)
        assert match is not None, f"{path} is not named like a screen"
        agent = path.parent.name
        verdict = inspect_screen(path.read_text("utf-8"), _profile(agent))
        kind = match["kind"] if match["state"] == "prompting" else ""
        yield Case(agent, path.stem, match["state"], kind or "", verdict)


def instants() -> Iterator[Case]:
    for path in sorted((TESTS / "recordings").glob("*.expected.json")):
        name = path.name.removesuffix(".expected.json")
        agent = name.removesuffix("-inline")
        expected = json.loads(path.read_text("utf-8")).get("states", [])
        cast = Cast(path.with_name(f"{name}.cast"), strict=True)
        states = inspect(cast, _profile(agent)).states
        for time, state in expected:
            found = [change.verdict for change in states if change.time <= time]
            kind = "permission" if state == "prompting" else ""
            yield Case(agent, f"{name}.cast at {time}", state, kind, found[-1])


def cases() -> list[Case]:
    return [*instants(), *screens()]


def table(found: list[Case]) -> str:
    """Return the table of README.md: the recognised screens of each state, and the mistakes."""
    lines = [f"| agent | {' | '.join(STATES)} | mistaken |", "|---|" + "---:|" * len(STATES) + "---|"]
    agents = sorted({case.agent for case in found})
    for agent in [*agents, "all"]:
        these = [case for case in found if agent in (case.agent, "all")]
        cells: list[str] = []
        mistaken: list[str] = []
        for state in STATES:
            verdicts = Counter(str(case.verdict.state) for case in these if case.state == state)
            right, total = verdicts.pop(state, 0), sum(case.state == state for case in these)
            cells.append(str(total or "") if right == total else f"{right} of {total}")
            mistaken += [f"{number} {state} for {said}" for said, number in sorted(verdicts.items())]
        lines.append(f"| {' | '.join([agent, *cells, ', '.join(mistaken)])} |")
    return "\n".join(lines)


def main() -> None:
    found = cases()
    print(table(found))
    for case in found:
        if not case.hit or not case.kind_hit:
            verdict = case.verdict
            kind = f"({verdict.kind})" if verdict.kind else ""
            print(f"{case.agent} {case.name}: said {verdict.state}{kind}; {verdict.reason}")
    if "--write" in sys.argv:
        text = PAGE.read_text("utf-8")
        before, rest = text.split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{rest.split(END)[1]}", "utf-8")


if __name__ == "__main__":
    main()
