"""No secret that a real agent's model or tools print is in any of relay's files.

Agents position words by column and draw only changed cells, so a scan of their bytes would miss the secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped
from relay.recording.asciicast import Cast

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
PIECE = 12
"""No file may contain this many consecutive characters of a secret."""


def random_text(random: Random, length: int, alphabet: str = LETTERS) -> str:
    return "".join(random.choices(alphabet, k=length - 2)) + "a7"


class Secrets:
    """Secrets generated at runtime, so that no file of the project contains one."""

    def __init__(self) -> None:
        random = Random(44)
        self.key = [random_text(random, 64, LETTERS + "+/") for _ in range(12)]
        self.lines = {
            "key is {}": "AK"
            + "IA"
            + random_text(random, 16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")[:14]
            + "A7",
            "token {}": "gh" + "p_" + random_text(random, 36),
            "{}": "sk-" + "ant-api03-" + random_text(random, 93),
            "a proj key {}": "sk-" + "proj-" + random_text(random, 48),
            "DB_PASSWORD: {}": random_text(random, 24),
            "Authorization: Bearer {}": random_text(random, 40),
            "postgres://app:{}@db.example.org/x": random_text(random, 24),
            'api_key = "{}"': random_text(random, 32),
            "curl --token {} https://example.org": random_text(random, 30),
        }

    @property
    def text(self) -> str:
        kind = "RSA PRIVATE" + " KEY"
        key = "\n".join((f"-----BEGIN {kind}-----", *self.key, f"-----END {kind}-----"))
        return "\n".join([*(form.format(value) for form, value in self.lines.items()), key])

    def pieces(self) -> Iterator[str]:
        for value in (*self.lines.values(), *self.key):
            yield from (value[start : start + PIECE] for start in range(len(value) - PIECE + 1))


def visible_text(path: Path) -> str:
    """Return the text of a recording's output, without its escape sequences and cursor jumps."""
    output = "".join(event.data for event in Cast(path, strict=True) if event.kind == "o")
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\r\n]", "", output)


def files_of_relay(alice: Wrapped) -> list[Path]:
    """Return the files of relay's home; the agent's own folders are next to its state."""
    home = alice.rig.relay.home
    return [path for path in home.rglob("*") if path.is_file() and home / alice.name not in path.parents]


@pytest.mark.agents("claude", "codex", "qwen", "pi")
def test_no_file_contains_a_secret(rig: Rig, agent: Agent) -> None:
    """R44: the model streams them in small pieces, a command prints them, and they are redrawn often."""
    secrets = Secrets()
    prose = "\n".join(f"Line {number} of an answer that is no secret at all." for number in range(30))
    answer = Step(f"Here:\n\n```\n{secrets.text}\n```\n\n{prose}\n")
    source = rig.relay.home / "Alice" / "work" / "leaked.txt"
    source.parent.mkdir(parents=True)
    source.write_text(secrets.text)
    alice = rig.wrap(
        agent,
        "Alice",
        Rule("say it", answer),
        Rule("print it", Step("", calls=(Shell("cat leaked.txt"),)), Step("That was it.")),
    )
    alice.say("say it")
    alice.sees("Line 29 of")
    alice.becomes("ready")
    alice.say("print it")
    alice.sees("That was it")
    rig.relay("stop", "--all", "--now")
    found = [
        (piece, path.name)
        for path in files_of_relay(alice)
        for text in [
            path.read_text("utf-8", "replace"),
            *([visible_text(path)] if path.suffix == ".cast" else []),
        ]
        for piece in secrets.pieces()
        if piece in text
    ]
    assert found == []
    (cast,) = (path for path in files_of_relay(alice) if path.suffix == ".cast")
    assert "*" * 20 in visible_text(cast) and "secret" in visible_text(cast)
