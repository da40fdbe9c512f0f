"""How often the rules are right on screens of older agent versions, which they were not written from.

    python tests/state/older.py [--apart] [-v]      prints the table of README.md; -v names each miss
    python tests/state/older.py --write             writes it there

tests/real_agents/draw.py drew them: `older/AGENT/STATE-SCENE-COLUMNS-VERSION.txt`. The rules were corrected
with two thirds of them; relay's verdict on the others (`apart`, by a digest of agent, scene and version) was
only checked once that was done.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections import Counter
from pathlib import Path

from confusion import Case, screens

FOLDER = Path(__file__).parent / "older"
PAGE = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- older:begin -->", "<!-- older:end -->"
_NAME = re.compile(r"[a-z]+-(?:(?:permission|plan_approval|question|other)-)?(.+)-\d+-([\d.]+)")


def older() -> list[Case]:
    return list(screens(FOLDER))


def version(case: Case) -> str:
    return case.name.rpartition("-")[2]


def apart(case: Case) -> bool:
    found = _NAME.fullmatch(case.name)
    assert found is not None, f"{case.name} is not named like a drawn screen"
    return zlib.crc32(f"{case.agent} {found[1]} {found[2]}".encode()) % 3 == 0


def dangerous(case: Case) -> bool:
    """Return True for a dialog or work that was taken for *ready*."""
    return case.verdict.state == "ready" and case.state in ("working", "prompting")


def table(found: list[Case]) -> str:
    """Return the table. Rows are agents: correct screens of those used for corrections, and apart."""
    lines = ["| agent | versions | right | right, apart | wrongly ready |", "|---|---|---:|---:|---:|"]
    agents = sorted({case.agent for case in found})
    for agent in [*agents, "all"]:
        these = [case for case in found if agent in (case.agent, "all")]
        versions = {version(case) for case in these} if agent != "all" else set[str]()
        total, right = Counter(map(apart, these)), Counter(apart(case) for case in these if _right(case))
        cells = [f"{right[part]} of {total[part]}" for part in (False, True)]
        cells = [agent, ", ".join(sorted(versions, key=_numbers)), *cells, str(sum(map(dangerous, these)))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def _right(case: Case) -> bool:
    return case.hit and case.kind_hit


def main() -> None:
    found = older()
    print(table(found))
    for case in found if "-v" in sys.argv else []:
        if not _right(case) and apart(case) == ("--apart" in sys.argv):
            print(f"{case.agent} {case.name}: {case.verdict.state}; {case.verdict.reason}")
    if "--write" in sys.argv:
        before, rest = PAGE.read_text("utf-8").split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{rest.split(END)[1]}", "utf-8")


if __name__ == "__main__":
    main()
