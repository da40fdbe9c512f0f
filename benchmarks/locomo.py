"""The conversations and questions of LoCoMo, read from the user's own file.

https://github.com/snap-research/locomo

Its licence, CC BY-NC 4.0, does not let us ship it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.memory_set import Question, Set
from relay.memory.backend import Memory, Scope

KINDS = ("turns", "facts")
"""What is saved: each turn as spoken, or the observations that LoCoMo derived from the turns."""

_ADVERSARIAL = 5  # the category of questions without an answer
_TURN = re.compile(r"D[0-9]+:[0-9]+")
_SCOPE = Scope("Ada", "locomo")


def read(path: Path, kind: str) -> Iterator[Set]:
    """Yield the notes and questions of each conversation in `path`. Raise ValueError if it is another file.

    A fact lists the turns it was derived from; a question's evidence is every note of one of its turns.
    """
    try:
        for sample in json.loads(path.read_text(encoding="utf-8")):
            yield _sample(sample, kind)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is not LoCoMo's locomo10.json ({type(error).__name__}: {error}).") from error


def _sample(sample: dict[str, Any], kind: str) -> Set:
    notes: list[Memory] = []
    by_turn: dict[str, set[str]] = {}
    texts: dict[str, str] = {}
    for when, text, turns in _turns(sample) if kind == "turns" else _facts(sample):
        id = texts.setdefault(text, f"n{len(texts)}")
        if id == f"n{len(notes)}":
            notes.append(Memory(id, text, _SCOPE.agent, _SCOPE.team, False, when.timestamp()))
        for turn in turns:
            by_turn.setdefault(turn, set()).add(id)
    questions = []
    for asked in sample["qa"]:
        turns = _TURN.findall(" ".join(asked["evidence"]))
        evidence = frozenset(id for turn in turns for id in by_turn.get(turn, ()))
        if evidence and asked["category"] != _ADVERSARIAL:
            questions.append(Question(str(asked["category"]), asked["question"], _SCOPE, evidence))
    return Set(notes, questions)


def _turns(sample: dict[str, Any]) -> Iterator[tuple[datetime, str, list[str]]]:
    for number, when in _sessions(sample):
        for place, turn in enumerate(sample["conversation"].get(f"session_{number}", ())):
            picture = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
            text = f"{turn['speaker']}: {turn['text']}{picture}"
            yield when + timedelta(seconds=10 * place), text, [turn["dia_id"]]


def _facts(sample: dict[str, Any]) -> Iterator[tuple[datetime, str, list[str]]]:
    for number, when in _sessions(sample):
        place = 0
        for speaker, facts in sample["observation"].get(f"session_{number}_observation", {}).items():
            for fact, source in facts:
                turns = _TURN.findall(source if isinstance(source, str) else " ".join(source))
                yield when + timedelta(seconds=10 * place), f"{speaker}: {fact}", turns
                place += 1


def _sessions(sample: dict[str, Any]) -> Iterator[tuple[int, datetime]]:
    """Yield the number and start of each session, in order."""
    conversation = sample["conversation"]
    number = 1
    while when := conversation.get(f"session_{number}_date_time"):
        yield number, datetime.strptime(when, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        number += 1
