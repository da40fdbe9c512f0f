"""What the memory store finds, and how fast, compared with its first layout and with mem0.

python -m benchmarks.memory [--quick] [--size N] [--locomo locomo10.json] [--write FILE]

Prints the table and writes it into docs/BENCHMARKS.md, which explains the figures.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import locomo, minilm, table
from benchmarks.memory_first import FirstStore
from benchmarks.memory_set import KINDS, Question, make
from benchmarks.table import Figure
from relay.memory.backend import MemoryBackend, Scope
from relay.memory.embedded import EmbeddedBackend

PAGE = Path(__file__).parent.parent / "docs" / "BENCHMARKS.md"
SIZES, QUICK_SIZES = (1_000, 10_000, 100_000), (1_000,)
QUESTIONS, QUESTIONS_OF_MANY = 200, 60
MANY = 100_000
RIVAL_NOTES = 1_000  # few, as a model reads each

Search = Callable[[str, Scope, int], Iterable[str]]
"""Return ids, best first."""


@dataclass(frozen=True, slots=True)
class Found:
    """at5, at10: the share of the evidence in the first 5 or 10 results. seconds: of each search, sorted."""

    at5: float
    at10: float
    by_kind: dict[str, float]
    seconds: Sequence[float]

    def recall(self) -> str:
        return f"{self.at10:.1%} (@5 {self.at5:.1%})"

    def time(self) -> str:
        return f"{_p(self.seconds, 50) * 1e3:.1f} ms (p95 {_p(self.seconds, 95) * 1e3:.1f} ms)"


def main(argv: list[str] | None = None) -> int:
    options = _parse(argv)
    os.environ["TZ"] = "UTC"  # the questions name the days of the notes
    time.tzset()
    figures: list[Figure] = []
    for size in options.size or (QUICK_SIZES if options.quick else SIZES):
        print(f"{size:,} memories ...", file=sys.stderr, flush=True)
        figures += of_size(size)
    figures += of_mem0()
    if options.locomo is not None:
        try:
            figures += of_locomo(options.locomo)
        except (OSError, ValueError) as error:
            print(f"{options.locomo}: {error}", file=sys.stderr)
            return 1
    machine = table.machine()
    print(f"\n{table.plain(figures)}\n\n{machine}")
    if target := options.write or (None if options.quick or options.size else PAGE):
        table.write(target, table.markdown(figures, machine, "make bench-memory"), "memory")
        print(f"Written to {target}.")
    return 0


def of_size(size: int) -> list[Figure]:
    """Measure both layouts with `size` generated notes."""
    made = make(size, QUESTIONS_OF_MANY if size >= MANY else QUESTIONS)
    with tempfile.TemporaryDirectory(prefix="rb-") as directory:
        old_path, new_path = Path(directory) / "first.db", Path(directory) / "memory.db"
        old = FirstStore(old_path)
        old.fill(made.notes)
        backend = EmbeddedBackend(new_path)
        for note in made.notes:
            backend.add(note)
        was, now = in_turns([old.search, ids_of(backend)], made.questions)
        old.close()
        backend.close()
    return [
        _recall(f"recall@10 in {size:,} memories", was, now),
        _time(f"search in {size:,} memories, p50", was, now),
    ]


def of_locomo(path: Path) -> list[Figure]:
    """Measure both layouts with the conversations in `path`, each in its own store."""
    figures = []
    for kind in locomo.KINDS:
        ends: list[list[Found]] = []
        for made in locomo.read(path, kind):
            with tempfile.TemporaryDirectory(prefix="rb-") as directory:
                old, backend = FirstStore(Path(directory) / "old"), EmbeddedBackend(Path(directory) / "new")
                old.fill(made.notes)
                for note in made.notes:
                    backend.add(note)
                ends.append(in_turns([old.search, ids_of(backend)], made.questions))
                old.close()
                backend.close()
        was, now = (_together([each[side] for each in ends]) for side in (0, 1))
        figures += [
            _recall(f"LoCoMo, {kind}: recall@10", was, now),
            _time(f"LoCoMo, {kind}: search, p50", was, now),
        ]
    return figures


def of_mem0() -> list[Figure]:
    """Measure mem0 with a local embedder against the embedded store, if both are installed."""
    name = f"recall@10 in {RIVAL_NOTES:,} memories, against mem0 with {minilm.MODEL}"
    absent = minilm.missing() + [name for name in ("mem0",) if importlib.util.find_spec(name) is None]
    if absent:
        return [Figure(name, "", "", f"not measured: no {', '.join(absent)}")]
    from relay_memory.mem0_backend import open_mem0

    made = make(RIVAL_NOTES, QUESTIONS)
    with tempfile.TemporaryDirectory(prefix="rb-") as directory, minilm.serving() as url:
        embedder = {
            "provider": "openai",
            "url": url,
            "model": minilm.MODEL,
            "embeddingDims": minilm.DIMENSIONS,
        }
        backends: list[MemoryBackend] = [
            EmbeddedBackend(Path(directory) / "memory.db"),
            open_mem0({"embedder": embedder}, Path(directory)),
        ]
        for note in made.notes:
            for backend in backends:
                backend.add(note)
        ours, theirs = in_turns([ids_of(backend) for backend in backends], made.questions)
        for backend in backends:
            backend.close()
    ratio = f"{ours.at10 / theirs.at10:.2f}"
    return [
        Figure(name, "", ours.recall(), f"mem0 {theirs.recall()}", ratio),
        Figure(
            f"recall@10 by kind of question: {', '.join(KINDS)}",
            "",
            ", ".join(f"{ours.by_kind[kind]:.0%}" for kind in KINDS),
            "mem0 " + ", ".join(f"{theirs.by_kind[kind]:.0%}" for kind in KINDS),
        ),
        Figure(f"search in {RIVAL_NOTES:,} memories, p50", "", ours.time(), f"mem0 {theirs.time()}"),
    ]


def in_turns(searches: Sequence[Search], questions: Sequence[Question]) -> list[Found]:
    """Put each question to each of `searches` in turn; return what each search found."""
    return [_together(each) for each in zip(*(_asked(searches, one) for one in questions), strict=True)]


def ids_of(backend: MemoryBackend) -> Search:
    return lambda query, scope, limit: [each.id for each in backend.search(query, scope, limit)]


def _asked(searches: Sequence[Search], question: Question) -> list[Found]:
    ends = []
    for search in searches:
        begun = time.perf_counter()
        ids = list(search(question.text, question.scope, 10))
        seconds = time.perf_counter() - begun
        at5, at10 = (len(question.evidence & set(ids[:k])) / len(question.evidence) for k in (5, 10))
        ends.append(Found(at5, at10, {question.kind: at10}, [seconds]))
    return ends


def _together(parts: Sequence[Found]) -> Found:
    """Merge the figures of `parts`, each of which covers one or more questions."""
    weights = [len(part.seconds) for part in parts]
    kinds = {kind for part in parts for kind in part.by_kind}
    return Found(
        sum(part.at5 * weight for part, weight in zip(parts, weights, strict=True)) / sum(weights),
        sum(part.at10 * weight for part, weight in zip(parts, weights, strict=True)) / sum(weights),
        {
            kind: statistics.mean(each.by_kind[kind] for each in parts if kind in each.by_kind)
            for kind in kinds
        },
        sorted(seconds for part in parts for seconds in part.seconds),
    )


def _recall(name: str, was: Found, now: Found) -> Figure:
    ratio = now.at10 / was.at10 if was.at10 else 0.0
    return Figure(
        name, "≥ first layout", now.recall(), f"first layout {was.recall()}", f"{ratio:.2f}", ratio >= 1
    )


def _time(name: str, was: Found, now: Found) -> Figure:
    ratio = _p(now.seconds, 50) / _p(was.seconds, 50)
    return Figure(name, "", now.time(), f"first layout {was.time()}", f"{ratio:.2f}")


def _p(values: Sequence[float], percent: int) -> float:
    """Return the percentile of sorted `values`."""
    return values[min(len(values) - 1, len(values) * percent // 100)]


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,000 memories only; the page is left alone")
    parser.add_argument("--size", type=int, action="append", metavar="N", help="so many memories instead")
    parser.add_argument(
        "--locomo", type=Path, metavar="FILE", help="LoCoMo's locomo10.json, to measure with, too"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="where to write (docs/BENCHMARKS.md)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
