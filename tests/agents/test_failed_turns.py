"""Failed turns in transcripts of real agents (claude 2.1.197, codex 0.169.0, gemini 0.61.0, copilot 1.0.102).

In each, the model first quotes such an error, which is text and not a failure.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.agents import kinds
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.transcript_lines import Failed
from relay.agents.transcript_reader import TranscriptReader

CAPTURED = Path(__file__).parent / "transcripts"
QUOTATION = 'API Error: 529 Overloaded is what it said, with "isApiErrorMessage":true and "type":"error".'
KEY = "API key not valid. Please pass a valid API key."
EXPECTED = {
    "claude": [("You've hit your session limit · resets 6:27am (America/New_York)", "rate_limit")],
    "codex": [
        (
            "You’ve hit your usage limit. Visit https://chatgpt.com/settings/usage to purchase more credits "
            "or try again at 11:27 AM.",
            "usage_limit_exceeded",
        ),
        ("unexpected status 401 Unauthorized: scripted error 401, url: ", "http_connection_failed"),
    ],
    "copilot": [
        ("Authentication failed with provider at http://127.0.0.1:", "authentication"),
        ("Failed to get response from the AI model; retried 5 times", "query"),
    ],
    "gemini": [
        (
            '[API Error: {"type":"error","error":{"code":400,"message":"'
            + KEY
            + '","status":"INVALID_ARGUMENT"}}]',
            "",
        )
    ],
}


def lines(kind: str) -> list[bytes]:
    return (CAPTURED / f"{kind}-failed.jsonl").read_bytes().splitlines()


@pytest.mark.parametrize("kind", EXPECTED)
def test_every_failed_turn_is_found_and_quotations_are_not(kind: str) -> None:
    failures = [found for line in lines(kind) if (found := kinds.find(kind).failure(line)) is not None]
    assert [found.code for found in failures] == [code for _, code in EXPECTED[kind]]
    assert all(found.text.startswith(text) for found, (text, _) in zip(failures, EXPECTED[kind], strict=True))
    assert len({found.id for found in failures}) == len(failures)
    assert all(found.time.endswith("Z") for found in failures)


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_failure_is_not_a_text_of_the_model(kind: str) -> None:
    read = kinds.find(kind).reader()
    assert [said.text for line in lines(kind) for said in read(line)] == [QUOTATION]


@pytest.mark.parametrize(
    "name", ["claude-subagent", "codex", "codex-subagent", "copilot", "gemini", "qwen", "relay"]
)
def test_a_conversation_without_errors_has_no_failures(name: str) -> None:
    kind = name.partition("-")[0]
    lines = (CAPTURED / f"{name}.jsonl").read_bytes().splitlines()
    assert [line for line in lines if kinds.find(kind).failure(line) is not None] == []


def test_a_subagents_failure_is_not_the_agents_failure() -> None:
    entry = json.loads(next(line for line in lines("claude") if kinds.find("claude").failure(line)))
    assert kinds.find("claude").failure(json.dumps({**entry, "isSidechain": True}).encode()) is None


@pytest.mark.parametrize(
    "changes", [{"isApiErrorMessage": "true"}, {"message": 7}, {"message": {"content": "x"}}]
)
def test_a_malformed_error_line_is_ignored_or_has_no_text(changes: dict[str, Any]) -> None:
    entry = json.loads(next(line for line in lines("claude") if kinds.find("claude").failure(line)))
    found = kinds.find("claude").failure(json.dumps({**entry, **changes}).encode())
    assert found is None or found.text == ""


@given(kind=st.sampled_from(sorted(EXPECTED)), line=st.binary())
def test_any_line_can_be_read(kind: str, line: bytes) -> None:
    for marked in (line, b'{"isApiErrorMessage":true,"task_complete":"error"}' + line):
        found = kinds.find(kind).failure(marked)
        assert found is None or isinstance(found, Failed)


def test_the_reader_returns_each_failure_once(tmp_path: Path) -> None:
    """Neither lines that the agent copies to another file nor those of earlier runs count again."""
    now = 1_795_590_000.0  # before the lines were written
    path, other = tmp_path / "main.jsonl", tmp_path / "other.jsonl"
    transcript = TranscriptReader("claude", clock=lambda: now)
    transcript.event(
        NativeEvent(NativeName.SESSION_START, "claude", transcript_path=str(path), source="startup")
    )
    path.write_bytes(b"\n".join(lines("claude")) + b"\n")
    assert [said.text for said in transcript.poll()] == [QUOTATION]
    assert [found.code for found in transcript.take_failures()] == ["rate_limit"]
    assert transcript.take_failures() == []
    transcript.event(
        NativeEvent(NativeName.SESSION_START, "claude", transcript_path=str(other), source="resume")
    )
    other.write_bytes(path.read_bytes())
    assert transcript.poll() == [] and transcript.take_failures() == []
    late = TranscriptReader("claude", clock=lambda: now)
    late.event(NativeEvent(NativeName.SESSION_START, "claude", transcript_path=str(path), source="resume"))
    assert late.poll() == [] and late.take_failures() == []
