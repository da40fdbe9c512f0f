"""A conversation's id, and whether the agent's file has something to resume."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.agents.conversation import Conversation, is_id, resumable

TRANSCRIPTS = Path(__file__).parent / "transcripts"
HERE = Path("/work")


def conversation(path: Path | None) -> Conversation:
    kind = "copilot" if path is not None and path.stem == "copilot" else "claude"
    return Conversation(kind, "0f5bd5cd", HERE, path)


@pytest.mark.parametrize("id", ["0f5bd5cd-1c9d-4f02-9a0e-0123456789ab", "ses_df6cafd23ffeIS5Hwo", "1", "a.b"])
def test_an_agents_conversation_id_is_valid(id: str) -> None:
    assert is_id(id)


@pytest.mark.parametrize(
    "id",
    ["", "-c", "--dangerously-skip-permissions", "a b", "a/b", "../b", "a\n", "a\0", "é", "a" * 129, "a;b"],
)
def test_any_other_id_is_invalid(id: str) -> None:
    """A hook's event may contain anything, but an id is never an option, a path or several words."""
    assert not is_id(id)
    assert Conversation.from_json({**conversation(None).to_json(), "id": id}) is None


WITH_A_PROMPT = sorted(path for path in TRANSCRIPTS.glob("[cgq]*.jsonl") if not path.stem.endswith("-failed"))


def test_a_conversation_with_a_prompt_can_be_resumed(subtests: pytest.Subtests) -> None:
    """The records are those of real agents."""
    for path in WITH_A_PROMPT:
        with subtests.test(path.stem):
            assert resumable(conversation(path))


def test_a_conversation_without_a_prompt_cannot_be_resumed(tmp_path: Path) -> None:
    path = tmp_path / "conversation.jsonl"
    assert not resumable(conversation(path))
    path.write_bytes(b"")
    assert not resumable(conversation(path))
    path.write_text('{"type":"mode","mode":"normal"}\n{"type":"summary","summary":"user"}\n')
    assert not resumable(conversation(path))
    assert not resumable(conversation(tmp_path))
    assert not resumable(conversation(Path("/a\0b")))
    os.mkfifo(tmp_path / "pipe")
    assert not resumable(conversation(tmp_path / "pipe")), "without waiting for a writer"


def test_a_conversation_without_a_file_counts_as_resumable() -> None:
    assert resumable(conversation(None))


@given(st.integers(0, 40))
def test_a_prompt_is_found_across_two_reads(before: int) -> None:
    path = Path(os.environ["HOME"]) / "conversation.jsonl"
    path.write_bytes(b"x" * ((1 << 16) - before) + b'{"type": "user"}\n')
    assert resumable(conversation(path))


@pytest.mark.parametrize("path", [None, Path("/folder/conversation.jsonl")])
def test_a_conversation_is_read_back_as_written(path: Path | None) -> None:
    assert Conversation.from_json(conversation(path).to_json()) == conversation(path)


@pytest.mark.parametrize("values", [{}, {"agent": "claude"}, {"agent": 1, "id": "a", "directory": "/"}])
def test_an_incomplete_conversation_is_ignored(values: dict[str, object]) -> None:
    assert Conversation.from_json(values) is None
