"""Transcripts of real agents: which of their entries are texts of the agent.

Captured from claude 2.1.197, codex 0.169.0, qwen 0.15.10 and copilot 1.0.102; paths are replaced and long
strings cut.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay.agents import kinds
from relay.agents.transcript_lines import Said

CAPTURED = Path(__file__).parent / "transcripts"

MULTI = ["Multi first.\n\n@relay:Bob x", "Multi middle.", "Multi end."]
FENCE = "Look:\n\n```sh\n@relay:Bob no\n```\n\n\\@relay:Bob escaped “ünï” 🙂\n- @relay:Bob yes\n"
LONG = "Long line is here.\n" * 40

EXPECTED = {
    # its last turns: one interrupted with Esc, one that failed with an API error
    "claude.jsonl": [*MULTI, "Same.", "Same.", "Same.", FENCE, "Asking a helper.", "Back again."],
    "claude-compacted.jsonl": [*MULTI, "Long before.", "Long end.", *MULTI, *MULTI],
    "claude-resumed.jsonl": [*MULTI, "Same.", "Same.", "Same."],
    "claude-forked.jsonl": [*MULTI, "Same.", "Same.", "Same.", *MULTI],
    # the last turn was interrupted
    "codex.jsonl": [*MULTI, LONG, "Long end."],
    # begins with a summary requested from the model
    "codex-compacted.jsonl": [*MULTI, *MULTI],
    "qwen.jsonl": [*MULTI, "Asking a helper.", "Back again."],
    "copilot.jsonl": [*MULTI, "Asking a helper.", "Back again."],
    "qwen-interrupted.jsonl": MULTI,
    "relay.jsonl": [*MULTI, "Same.", "Same.", FENCE, "Back again."],
}


def texts_of(name: str) -> list[Said]:
    read = kinds.find(name.partition(".")[0].partition("-")[0]).reader()
    return [said for line in (CAPTURED / name).read_bytes().splitlines() for said in read(line)]


@pytest.mark.parametrize("name", EXPECTED)
def test_every_text_is_found_and_nothing_else(name: str) -> None:
    """Texts before tool calls count (R86); summaries, API errors and interrupted texts do not."""
    assert [said.text for said in texts_of(name) if not said.subagent] == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_each_text_has_a_unique_id_and_times_are_in_order(name: str) -> None:
    said = [each for each in texts_of(name) if not each.subagent]
    assert len({each.id for each in said}) == len(said)
    assert all(each.time.endswith("Z") for each in said)
    assert [each.time for each in said] == sorted(each.time for each in said)


@pytest.mark.parametrize(
    ("name", "subagent"),
    [
        ("claude-subagent.jsonl", "a7443b7a25dc06331"),
        ("qwen.jsonl", "general-purpose-ua8de6"),
        ("relay.jsonl", "ses_1"),
    ],
)
def test_a_subagents_texts_are_attributed_to_it(name: str, subagent: str) -> None:
    said = [(each.text, each.subagent, each.agent_type) for each in texts_of(name) if each.subagent]
    assert said == [(text, subagent, "general-purpose") for text in ("Sub before tool.", "Sub final.")]


def test_claude_copies_lines_into_a_forked_session_with_their_ids_and_times() -> None:
    """Ids and times distinguish the copies from new lines."""
    old, new = texts_of("claude-resumed.jsonl"), texts_of("claude-forked.jsonl")
    assert new[: len(old)] == old
    assert len(new) == len(old) + 3


def test_qwens_background_requests_yield_no_text() -> None:
    """After a turn, qwen asks the model what to remember; the answer may quote anything."""
    line = (CAPTURED / "qwen.jsonl").read_bytes().splitlines()[16]
    assert [said.text for said in kinds.find("qwen").reader()(line)] == ["Sub before tool."]
    background = line.replace(
        b'"subagent_name":"general-purpose"', b'"subagent_name":"managed-auto-memory-extractor"'
    )
    assert kinds.find("qwen").reader()(background) == []


def test_a_line_of_relays_dialect_needs_only_an_id_and_a_text() -> None:
    """docs/PATTERNS.md documents the format for users' programs."""
    assert kinds.find("relay").reader()(b'{"type": "said", "id": "7", "text": "Hi.", "mood": "good"}') == [
        Said("Hi.", "7")
    ]


def test_the_path_of_a_subagents_transcript_is_known() -> None:
    assert kinds.find("claude").subagent_transcript("/p/S.jsonl", "a1") == "/p/S/subagents/agent-a1.jsonl"
    assert kinds.find("claude").subagent_transcript("/p/S.jsonl", "../../x") == ""
    assert kinds.find("claude").subagent_transcript("", "a1") == ""
    assert kinds.find("codex").subagent_transcript("/p/rollout.jsonl", "a1") == "/p/rollout.jsonl"
    assert kinds.find("qwen").subagent_transcript("/p/S.jsonl", "a1") == ""


MALFORMED = [
    b"",
    b"\xff\xfe\x00",
    b'"assistant" "AgentMessage" "subagent_name"',
    b'{"type":"assistant"',
    b'{"type":"assistant","message":[]}',
    b'{"type":"assistant","message":{"content":[1,null,{"type":"text"},{"type":"text","text":7}],"parts":"x"}}',
    b'{"type":"event_msg","payload":{"type":"item_completed","item":{"type":"AgentMessage","content":{}}}}',
    b'{"type":"system","systemPayload":{"uiEvent":{"subagent_name":[],"event.name":"qwen-code.api_response"}}}',
    b'["assistant","AgentMessage","subagent_name"]',
    b'{"type":"said","text":"of nobody knows which time"}',
    b'{"type":"said","id":"1","text":["no text"]}',
    b'{"type":"said","id":"1","text":" \\n"}',
    b'{"type":"thought","id":"1","text":"Let me think."}',
    b'{"type":"user","message":{"content":[{"type":"text","text":"\\"assistant\\" says"}]}}',
    b'{"assistant":' + b"[" * 100_000,
]


def test_a_malformed_line_yields_no_text(subtests: pytest.Subtests) -> None:
    for kind in ["claude", "codex", "copilot", "qwen", "relay"]:
        for line in MALFORMED:
            with subtests.test(f"{kind} {line[:80]!r}"):
                assert kinds.find(kind).reader()(line) == []


def test_invalid_unicode_in_a_text_is_replaced() -> None:
    line = b'{"type":"assistant","uuid":"u","message":{"content":[{"type":"text","text":"a\\ud800b \xff"}]}}'
    (said,) = kinds.find("claude").reader()(line)
    assert said.text == "a?b �"
    said.text.encode()


def test_qwens_texts_are_read_though_its_server_counts_no_tokens() -> None:
    """A missing count means an interrupted message only if other messages are counted."""
    line = json.dumps({"type": "assistant", "uuid": "u", "message": {"parts": [{"text": "Hello."}]}}).encode()
    assert [said.text for said in kinds.find("qwen").reader()(line)] == ["Hello."]


def test_qwens_thoughts_are_not_texts() -> None:
    parts = [
        {"text": "Let me think.", "thought": True},
        {"text": "Hello "},
        {"text": "there."},
        {"functionCall": {}},
    ]
    line = json.dumps({"type": "assistant", "uuid": "u", "message": {"parts": parts}}).encode()
    assert [said.text for said in kinds.find("qwen").reader()(line)] == ["Hello there."]
