"""The figures as a table, on the terminal and in docs/BENCHMARKS.md."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relay.cli.output import table

HEADINGS = ("what", "goal", "relay", "compared with", "ratio", "")


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table. ratio: as text. ok: None without a goal."""

    what: str
    goal: str
    measured: str
    rival: str = ""
    ratio: str = ""
    ok: bool | None = None

    def cells(self) -> tuple[str, ...]:
        verdict = {None: "", True: "ok", False: "MISSED"}[self.ok]
        return (self.what, self.goal, self.measured, self.rival, self.ratio, verdict)


def plain(figures: Sequence[Figure]) -> str:
    """Return the table formatted for a terminal."""
    head, *lines = table([HEADINGS, *(figure.cells() for figure in figures)])
    return "\n".join([head, "-" * max(map(len, lines)), *lines])


def markdown(figures: Sequence[Figure], machine: str, command: str = "make bench") -> str:
    """Return the table for docs/BENCHMARKS.md, without its markers; `command` produced it."""
    rows = [HEADINGS, tuple("---" for _ in HEADINGS), *(figure.cells() for figure in figures)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", f"{machine} Made by `{command}`."])


def write(path: Path, block: str, name: str = "bench") -> None:
    """Replace the text between the markers of `name` in `path`. Raise ValueError if they are missing."""
    opening, closing = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(opening)
    _, end, after = rest.partition(closing)
    if not begin or not end:
        raise ValueError(f"{path} has no {opening} ... {closing}; put the two where the table is to stand.")
    path.write_text(f"{before}{opening}\n{block}\n{closing}{after}", encoding="utf-8")


def machine() -> str:
    """Return a sentence about the machine and the programs measured."""
    parts = [
        f"{os.cpu_count()} × {_processor()}",
        f"{platform.system()} {platform.release()}",
        f"Python {platform.python_version()}",
        _version("script", "--version"),
        _version("tmux", "-V"),
        f"load {os.getloadavg()[0]:.1f}",
    ]
    return ", ".join(part for part in parts if part) + "."


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _version(program: str, option: str) -> str:
    if shutil.which(program) is None:
        return f"no {program}"
    answer = subprocess.run([program, option], capture_output=True, text=True, check=False)
    return answer.stdout.strip()
