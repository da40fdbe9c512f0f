"""The table of the versions of agents that were tested, in the docs: a row for each run of all tests."""

from __future__ import annotations

import datetime
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from real_agents.install import PACKAGES

BEGIN, END = "<!-- versions:begin -->", "<!-- versions:end -->"
HEAD = "| agent | version | passed | failed | tested on |\n| --- | --- | --- | --- | --- |\n"
_AGENT = re.compile(r"\[([a-z]+)")


class VersionsTable:
    """Counts what each agent passes, and writes it into `file` at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._outcomes: dict[str, dict[str, str]] = defaultdict(dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = _AGENT.search(report.nodeid)
        if found is None or found[1] not in PACKAGES or (report.when != "call" and not report.failed):
            return
        self._outcomes[found[1]][report.nodeid] = report.outcome

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
            self._file.write_text(written(text, rows), encoding="utf-8")


def written(text: str, rows: dict[tuple[str, str], str]) -> str:
    """Return `text` with these rows in its table, by agent and version; those of other versions stay."""
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    kept = {
        (cells[1], cells[2]): f"{line}\n" for line in table.splitlines() if len(cells := _cells(line)) > 4
    }
    kept = {key: row for key, row in kept.items() if key[0] in PACKAGES} | rows
    return f"{before}{BEGIN}\n{HEAD}{''.join(row for _, row in sorted(kept.items()))}{END}{after}"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _test(node: str) -> str:
    return f"`{node.rpartition('::')[2].partition('[')[0].removeprefix('test_')}`"
