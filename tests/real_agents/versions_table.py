"""Update the tables of tested agents in docs/AGENTS.md.

Versions: a row for each run of all tests. Received: how many directives of a long reply the screen alone
showed. From an agent's own record, all of them must arrive, so those have no row.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from real_agents.install import PACKAGES

BEGIN, END = "<!-- versions:begin -->", "<!-- versions:end -->"
HEAD = "| agent | version | passed | failed | tested on |\n|---|---|---|---|---|\n"
RECEIVED = "<!-- heard:begin -->", "<!-- heard:end -->"
RECEIVED_HEAD = "| agent | version | read once | missed | read, though none |\n" + HEAD.splitlines()[1] + "\n"
_AGENT = re.compile(r"\[([a-z]+)")


class VersionsTable:
    """Counts the tests that each agent passes, and writes the tables into `file` at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._outcomes: dict[str, dict[str, str]] = defaultdict(dict)
        self._received: dict[tuple[str, str], str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = _AGENT.search(report.nodeid)
        if found is None or found[1] not in PACKAGES or (report.when != "call" and not report.failed):
            return
        self._outcomes[found[1]][report.nodeid] = report.outcome
        for _, cells in (each for each in report.user_properties if each[0] == "received"):
            if cells[0] == "its screen":
                version = PACKAGES[found[1]].version
                self._received[found[1], version] = f"| {' | '.join((found[1], version, *cells[1:]))} |\n"

    def pytest_sessionfinish(self) -> None:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        rows = {}
        for agent, outcomes in self._outcomes.items():
            failed = sorted({_test(node) for node, outcome in outcomes.items() if outcome == "failed"})
            passed = Counter(outcomes.values())["passed"]
            version = PACKAGES[agent].version
            cells = agent, version, f"{passed} of {len(outcomes)}", ", ".join(failed), today
            rows[agent, version] = f"| {' | '.join(cells)} |\n"
        if rows:
            text = self._file.read_text(encoding="utf-8")
            text = with_rows(with_rows(text, rows), self._received, RECEIVED, RECEIVED_HEAD)
            self._file.write_text(text, encoding="utf-8")


def with_rows(
    text: str, rows: dict[tuple[str, str], str], marks: tuple[str, str] = (BEGIN, END), head: str = HEAD
) -> str:
    """Return `text` with these rows in the table between `marks`, replacing rows with the same two cells."""
    before, _, rest = text.partition(marks[0])
    table, _, after = rest.partition(marks[1])
    kept = {
        (cells[1], cells[2]): f"{line}\n" for line in table.splitlines() if len(cells := _cells(line)) > 4
    }
    kept = {key: row for key, row in kept.items() if key[0] in PACKAGES} | rows
    return f"{before}{marks[0]}\n{head}{''.join(row for _, row in sorted(kept.items()))}{marks[1]}{after}"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _test(node: str) -> str:
    return f"`{node.rpartition('::')[2].partition('[')[0].removeprefix('test_')}`"
