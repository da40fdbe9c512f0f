"""The benchmarks run, and write their tables into the docs. No test asserts speed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from benchmarks import memory_set

ROOT = Path(__file__).parent.parent
TABLE_MAKER = """\
import sys
from pathlib import Path
from benchmarks.table import Figure, markdown, plain, write

figures = [
    Figure("`cat`", "≤ 1.15 × script", "1.00 s", "script 1.00 s", "1.00", True),
    Figure("a|b", "", "-", ok=False),
]
print(plain(figures))
write(Path(sys.argv[1]), markdown(figures, "2 × a processor."))
"""


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python with `arguments` at the root of the checkout, where `benchmarks` can be imported."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_readers_are_measured_for_each_kind_of_output() -> None:
    done = run("-m", "benchmarks.readers", "--quick")
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["output", "MB", "CPU", "s", "MB/s"]
    rates = {name.strip(): int(row.rsplit(maxsplit=1)[1]) for row in rows for name in (row[:38],)}
    assert rates.keys() == {
        "plain text",
        "an @ in every line",
        "colours",
        "a directive in every line",
        "plain text in a program that draws",
        "colours in a program that draws",
    }
    assert min(rates.values()) > 0


def test_the_benchmarks_are_listed() -> None:
    listed = run("-m", "benchmarks", "--list")
    assert listed.returncode == 0, listed.stderr
    rows = dict(line.split(maxsplit=1) for line in listed.stdout.splitlines())
    assert {
        "cat",
        "echo",
        "echo-flood",
        "first-byte",
        "latency",
        "burst",
        "blocked",
        "memory",
        "idle",
        "stream",
        "injection",
        "injection-cost",
    } <= set(rows)


def test_the_cost_of_an_injection_is_measured() -> None:
    """R85: for a short text and one at the limit."""
    done = run("-m", "benchmarks", "--quick", "--only", "injection-cost")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("relay's own work per injection")]
    assert len(rows) == 2 and all("≤ 10 ms" in row for row in rows)
    assert "10 KB" in rows[1]


def test_an_unknown_benchmark_is_refused_with_the_known_ones() -> None:
    refused = run("-m", "benchmarks", "--only", "nothing")
    assert refused.returncode == 2
    assert "first-byte" in refused.stderr


def test_the_table_is_written_between_the_markers(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("above\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nbelow\n", encoding="utf-8")
    for _ in range(2):  # the second run replaces the first table
        done = run("-c", TABLE_MAKER, readme)
        assert done.returncode == 0, done.stderr
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("above\n<!-- bench:begin -->\n| what |")
    assert text.endswith("<!-- bench:end -->\nbelow\n")
    assert text.count("| `cat` | ≤ 1.15 × script | 1.00 s | script 1.00 s | 1.00 | ok |") == 1
    assert "| a\\|b |" in text
    assert "old" not in text
    assert "MISSED" in done.stdout


def test_a_page_without_markers_is_reported_and_unchanged(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("no table here\n", encoding="utf-8")
    done = run("-c", TABLE_MAKER, page)
    assert done.returncode == 1
    assert f"{page} has no <!-- bench:begin -->" in done.stderr
    assert page.read_text(encoding="utf-8") == "no table here\n"


def test_the_page_of_benchmarks_has_its_markers() -> None:
    text = (ROOT / "docs" / "BENCHMARKS.md").read_text(encoding="utf-8")
    found = re.findall(r"^<!-- (\w+:\w+) -->$", text, re.MULTILINE)
    assert found == [
        f"{name}:{end}" for name in ("bench", "memory", "growth", "fleet") for end in ("begin", "end")
    ]


def test_a_small_fleet_is_measured() -> None:
    """Three agents connect, discover each other and receive all messages; no process is left."""
    done = run("-m", "benchmarks.fleet", "--quick", "--only", "agents", "--size", "3")
    assert done.returncode == 0, done.stderr
    lines = (line.strip("| ").split(" | ") for line in done.stdout.splitlines())
    rows = {cells[0]: cells[1] for cells in lines if len(cells) == 2}
    assert rows["simulated agents"] == "3"
    assert rows["memory per agent (PSS)"].endswith(" MB")
    assert "left behind" not in done.stderr


LOCOMO = [
    {
        "conversation": {
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "What did you buy in Lisbon?"},
                {"speaker": "Ben", "dia_id": "D1:2", "text": "A guitar!", "blip_caption": "a red thing"},
            ],
            "session_2_date_time": "9:05 am on 2 June, 2023",
            "session_2": [{"speaker": "Ann", "dia_id": "D2:1", "text": "Good morning."}],
        },
        "observation": {"session_1_observation": {"Ben": [["Ben bought a guitar in Lisbon.", "D1:2"]]}},
        "qa": [
            {"question": "What did Ben buy in Lisbon?", "evidence": ["D1:2"], "category": 1},
            {"question": "Who sold it?", "evidence": ["D1:2"], "category": 5},
            {"question": "Who knows?", "evidence": [], "category": 1},
        ],
    }
]


def test_the_recall_of_the_memory_store_is_measured(tmp_path: Path) -> None:
    """With few memories and a file in LoCoMo's format; docs/BENCHMARKS.md does not change."""
    file, page = tmp_path / "locomo10.json", tmp_path / "page.md"
    file.write_text(json.dumps(LOCOMO), encoding="utf-8")
    page.write_text("<!-- memory:begin -->\n<!-- memory:end -->\n", encoding="utf-8")
    done = run("-m", "benchmarks.memory", "--size", "300", "--locomo", file, "--write", page)
    assert done.returncode == 0, done.stderr
    rows = {line.split("|")[1].strip(): line for line in page.read_text(encoding="utf-8").splitlines()[3:-3]}
    assert "%" in rows["recall@10 in 300 memories"]
    assert "100.0% (@5 100.0%)" in rows["LoCoMo, facts: recall@10"]
    assert "100.0% (@5 100.0%)" in rows["LoCoMo, turns: recall@10"]  # the query names the speaker
    assert "ms (p95" in rows["LoCoMo, turns: search, p50"]
    assert "Made by `make bench-memory`." in page.read_text(encoding="utf-8")


def test_a_file_that_is_not_locomos_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('[{"a": 1}]', encoding="utf-8")
    done = run("-m", "benchmarks.memory", "--size", "100", "--locomo", tmp_path / "x.json")
    assert done.returncode == 1
    assert "this is not LoCoMo's locomo10.json" in done.stderr


def test_the_set_of_memories_is_reproducible() -> None:
    first, second = (memory_set.make(500, 40) for _ in range(2))
    assert first == second
    assert len(first.notes) == len({note.text for note in first.notes}) == 500
    assert {question.kind for question in first.questions} == set(memory_set.KINDS)
    by_id = {note.id: note for note in first.notes}
    assert all(question.scope.sees(by_id[id]) for question in first.questions for id in question.evidence)
