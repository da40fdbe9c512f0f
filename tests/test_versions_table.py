"""The tables of tested agent versions that `make test-agents-newest` writes into the docs."""

from __future__ import annotations

from pathlib import Path

import tomli

from real_agents.install import PINNED
from real_agents.versions_table import BEGIN, END, HEAD, RECEIVED, RECEIVED_HEAD, with_rows
from relay import data

PAGE = Path(__file__).parent.parent / "docs" / "AGENTS.md"
OLD = "| claude | 1.0 | 9 of 9 |  | 2026-01-01 |\n"


def test_a_run_replaces_its_row_and_keeps_those_of_other_versions() -> None:
    text = f"before\n{BEGIN}\n{HEAD}{OLD}{END}\nafter\n"
    again = "| claude | 1.0 | 8 of 9 | `one` | 2026-01-02 |\n"
    newer = "| claude | 1.1 | 9 of 9 |  | 2026-01-02 |\n"
    both = with_rows(text, {("claude", "1.1"): newer})
    assert both == f"before\n{BEGIN}\n{HEAD}{OLD}{newer}{END}\nafter\n"
    assert (
        with_rows(both, {("claude", "1.0"): again}) == f"before\n{BEGIN}\n{HEAD}{again}{newer}{END}\nafter\n"
    )


def test_the_docs_have_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_rows(text, {}) == text
    assert with_rows(text, {}, RECEIVED, RECEIVED_HEAD) == text


def test_pattern_files_name_the_versions_that_passed() -> None:
    """Those that relay was built with, and those of table rows without failures."""
    passed = {(name, package.version) for name, package in PINNED.items()}
    for line in PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].splitlines():
        _, agent, version, _, failed, *_ = [cell.strip() for cell in line.split("|")] if line else [""] * 6
        if agent in PINNED and not failed:
            passed.add((agent, version))
    files = [tomli.loads(path.read_text("utf-8")) for path in data.directory("patterns").glob("*.toml")]
    assert {(file["name"], version) for file in files for version in file.get("checked", ())} == passed
