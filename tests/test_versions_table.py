"""The table of tested agent versions, as `make test-agents-newest` writes it into the docs."""

from __future__ import annotations

from pathlib import Path

import tomli

from real_agents.install import PINNED
from real_agents.versions_table import BEGIN, END, HEAD, HEARD, HEARD_HEAD, written
from relay import data

NATIVE = Path(__file__).parent.parent / "docs" / "NATIVE.md"
OLD = "| claude | 1.0 | 9 of 9 |  | 2026-01-01 |\n"


def test_a_run_replaces_its_row_and_keeps_those_of_other_versions() -> None:
    text = f"before\n{BEGIN}\n{HEAD}{OLD}{END}\nafter\n"
    again = "| claude | 1.0 | 8 of 9 | `one` | 2026-01-02 |\n"
    newer = "| claude | 1.1 | 9 of 9 |  | 2026-01-02 |\n"
    both = written(text, {("claude", "1.1"): newer})
    assert both == f"before\n{BEGIN}\n{HEAD}{OLD}{newer}{END}\nafter\n"
    assert written(both, {("claude", "1.0"): again}) == f"before\n{BEGIN}\n{HEAD}{again}{newer}{END}\nafter\n"


def test_the_docs_have_the_table() -> None:
    text = NATIVE.read_text(encoding="utf-8")
    assert written(text, {}) == text
    assert written(text, {}, HEARD, HEARD_HEAD) == text


def test_pattern_files_name_the_versions_that_passed() -> None:
    """The versions are those relay was built with, and those in table rows without failures."""
    passed = {(name, package.version) for name, package in PINNED.items()}
    for line in NATIVE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].splitlines():
        _, agent, version, _, failed, *_ = [cell.strip() for cell in line.split("|")] if line else [""] * 6
        if agent in PINNED and not failed:
            passed.add((agent, version))
    files = [tomli.loads(path.read_text("utf-8")) for path in data.directory("patterns").glob("*.toml")]
    assert {(file["name"], version) for file in files for version in file.get("checked", ())} == passed
