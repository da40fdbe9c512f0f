"""An agent's texts, from its transcript and its hook events: each is read once, in order (R86)."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.transcript_lines import Said
from relay.agents.transcript_reader import BUDGET, GRACE, SHORT, SILENT, TranscriptReader

CAPTURED = Path(__file__).parent / "transcripts"
START = 1_795_000_000.0  # before everything captured


class Agent:
    """Simulates claude: its hooks, and its transcript, which only `write` writes."""

    def __init__(self, folder: Path) -> None:
        self.now = START
        self.folder = folder
        self.path = folder / "main.jsonl"
        self.reader = TranscriptReader("claude", clock=lambda: self.now)
        self.unwritten = b""
        self.count = 0

    def hook(self, name: NativeName, **fields: Any) -> list[str]:
        fields = {"transcript_path": str(self.path)} | fields
        return texts(self.reader.event(NativeEvent(name, "claude", **fields)))

    def start(self, source: str = "startup") -> list[str]:
        self.now += 1
        return self.hook(NativeName.SESSION_START, source=source)

    def stop(self, text: str) -> list[str]:
        return self.hook(NativeName.STOP, last_assistant_message=text.strip())

    def line(self, text: str, **changes: Any) -> bytes:
        """Return a line of a transcript; the model says it now."""
        self.count += 1
        self.now += 0.01
        time = datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        entry = {
            "type": "assistant",
            "uuid": f"u{self.count}",
            "timestamp": time,
            "message": {"model": "m", "content": [{"type": "text", "text": text}]},
        }
        return json.dumps(entry | changes).encode() + b"\n"

    def say(self, text: str) -> None:
        """Say something, to be written later."""
        self.unwritten += self.line(text)

    def write(self) -> None:
        append(self.path, self.unwritten)
        self.unwritten = b""

    def poll(self, after: float = 0.0) -> list[str]:
        self.now += after
        return texts(self.reader.poll())

    def problem(self) -> str | None:
        return self.reader.problem

    def unsettled(self) -> bool:
        return not self.reader.settled


def texts(said: list[Said]) -> list[str]:
    return [each.text for each in said]


def append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def test_texts_before_tool_calls_are_read_in_order(agent: Agent) -> None:
    agent.start()
    agent.say("First I look.")
    agent.write()
    assert agent.hook(NativeName.TOOL_PRE) == ["First I look."]
    agent.say("Now I know.")
    agent.write()
    assert agent.poll() == ["Now I know."]
    assert agent.stop("Now I know.") == []
    assert agent.poll(after=60) == []


def test_a_stop_waits_for_a_lagging_transcript(agent: Agent) -> None:
    """The last text does not overtake the one before it, which is not written yet either."""
    agent.start()
    agent.say("First.")
    agent.say("Last.")
    assert agent.stop("Last.") == []
    assert agent.unsettled()
    assert agent.poll(after=2.0) == [], "qwen 0.24.4 on a busy machine"
    agent.write()
    assert agent.poll() == ["First.", "Last."]
    assert not agent.unsettled()
    assert agent.poll(after=60) == []


def test_a_text_has_its_place_in_the_transcript(agent: Agent) -> None:
    """The place is the end of its line, whatever was read before it and in whatever steps."""
    agent.say("An earlier run.")
    agent.write()
    agent.start()
    agent.unwritten += agent.line("two", type="user")
    agent.say("One.")
    ends = [agent.path.stat().st_size + len(agent.unwritten)]
    agent.write()
    said = agent.reader.poll()
    agent.say("Two.")
    agent.write()
    ends.append(agent.path.stat().st_size)
    said += agent.reader.poll()
    assert [(each.text, each.place) for each in said] == [("One.", ends[0]), ("Two.", ends[1])]


def test_a_text_from_a_stop_event_has_no_place(agent: Agent) -> None:
    agent.start()
    agent.stop("Done.")
    agent.now += GRACE
    assert [each.place for each in agent.reader.poll()] == [0]


def test_a_text_missing_from_the_transcript_is_taken_from_the_stop(agent: Agent) -> None:
    agent.start()
    agent.stop("Done.")
    assert agent.poll(after=GRACE) == ["Done."]
    assert agent.reader.settled


def test_a_text_that_reaches_the_transcript_late_is_not_repeated(agent: Agent) -> None:
    agent.start()
    agent.say("  Done.\n")
    agent.stop("Done.")
    assert agent.poll(after=GRACE) == ["Done."]
    agent.write()
    assert agent.poll() == []


def test_a_text_that_is_said_twice_is_read_twice(agent: Agent) -> None:
    agent.start()
    found = []
    for _ in range(2):
        agent.say("ok")
        agent.stop("ok")
        found += agent.poll(after=GRACE)
    agent.write()
    agent.say("ok")
    agent.write()
    found += agent.poll()
    assert found == ["ok", "ok", "ok"]


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["say a", "say b", "say ab"]),
            st.sampled_from(["stop", "write", "half", "poll", "wait"]),
        )
    )
)
def test_each_text_is_read_once_however_stops_and_the_transcript_interleave(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    agent = Agent(tmp_path_factory.mktemp("mix"))
    found = agent.start()
    spoken: list[str] = []
    stopped_at = 0  # number of texts at the last stop
    for step in steps:
        match step.split():
            case ["say", text]:
                agent.say(text)
                spoken.append(text)
            case ["stop"] if len(spoken) > stopped_at:
                found += agent.stop(spoken[-1])
                stopped_at = len(spoken)
            case ["write"]:
                agent.write()
            case ["half"]:
                half = len(agent.unwritten) // 2
                append(agent.path, agent.unwritten[:half])
                agent.unwritten = agent.unwritten[half:]
            case ["wait"]:
                found += agent.poll(after=GRACE)
            case ["poll"]:
                found += agent.poll(after=0.1)
    agent.write()
    found += texts(agent.reader.close())
    assert Counter(found) == Counter(spoken)


@given(st.lists(st.integers(0, 60_000)), st.sampled_from(["claude", "codex", "codex-compacted", "qwen"]))
def test_a_real_transcript_gives_the_same_texts_however_it_grows(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], name: str
) -> None:
    kind = name.partition("-")[0]
    data = (CAPTURED / f"{name}.jsonl").read_bytes()
    path = tmp_path_factory.mktemp("grow") / "t.jsonl"
    start = NativeEvent(NativeName.SESSION_START, kind, transcript_path=str(path), source="startup")

    whole = TranscriptReader(kind, clock=lambda: START)
    whole.event(start)
    append(path, data)
    expected = whole.poll()
    assert len(expected) >= 5

    path.unlink()
    reader = TranscriptReader(kind, clock=lambda: START)
    reader.event(start)
    said: list[Said] = []
    for a, b in pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
        append(path, data[a:b])
        said += reader.poll()
    assert said == expected


def test_a_resumed_transcript_is_read_from_its_end(agent: Agent) -> None:
    agent.say("Said in an earlier run.")
    agent.write()
    assert agent.start("resume") == []
    assert agent.hook(NativeName.PROMPT_SUBMIT, prompt="go on") == []
    agent.say("Said right after.")
    agent.write()
    assert agent.poll() == ["Said right after."]


def test_times_of_old_lines_do_not_matter_in_a_resumed_transcript(agent: Agent) -> None:
    """The transcript may come from another machine, or have no times."""
    append(agent.path, agent.line("No time.", timestamp=None) + agent.line("Later.", timestamp="2999-01-01"))
    assert agent.start("resume") == []
    assert agent.poll() == []


def test_clear_reads_the_rest_of_the_old_session_and_all_of_the_new(agent: Agent) -> None:
    agent.start()
    agent.say("Old.")
    agent.write()
    agent.path = agent.folder / "new.jsonl"
    assert agent.start("clear") == ["Old."]
    agent.say("New.")
    agent.write()
    assert agent.poll() == ["New."]


def test_returning_to_a_session_of_this_run_misses_and_repeats_nothing(agent: Agent) -> None:
    first = agent.path
    agent.start()
    agent.say("One.")
    agent.write()
    assert agent.poll() == ["One."]
    agent.path = agent.folder / "second.jsonl"
    agent.start("clear")
    agent.path = first
    assert agent.start("resume") == []
    agent.say("Two.")
    agent.write()
    assert agent.poll() == ["Two."]


def test_old_lines_copied_into_a_forked_session_are_not_read(agent: Agent) -> None:
    """`claude --resume ID --fork-session`: SessionStart names the old file, the new one starts as a copy."""
    agent.say("Said in an earlier run.")
    agent.write()
    agent.start("resume")
    agent.say("Said in this run.")
    agent.write()
    assert agent.poll() == ["Said in this run."]
    copy = agent.path.read_bytes()
    agent.path = agent.folder / "fork.jsonl"
    assert agent.hook(NativeName.PROMPT_SUBMIT, prompt="go on") == []
    append(agent.path, copy)
    agent.say("New.")
    agent.write()
    assert agent.poll() == ["New."]


def test_only_the_new_lines_of_a_real_fork_are_read(tmp_path: Path) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    append(old, (CAPTURED / "claude-resumed.jsonl").read_bytes())
    now = datetime.fromisoformat("2026-11-22T06:31:03Z").timestamp()  # between the two
    reader = TranscriptReader("claude", clock=lambda: now)
    for name, path in ((NativeName.SESSION_START, old), (NativeName.PROMPT_SUBMIT, new)):
        assert reader.event(NativeEvent(name, "claude", transcript_path=str(path), source="resume")) == []
    append(new, (CAPTURED / "claude-forked.jsonl").read_bytes())
    assert texts(reader.poll()) == ["Multi first.\n\n@relay:Bob x", "Multi middle.", "Multi end."]


def test_joining_in_the_middle_of_a_turn_reads_the_texts_of_this_run(agent: Agent) -> None:
    """A missing SessionStart, as from a hook that timed out, loses nothing and repeats nothing."""
    agent.now -= 3600
    agent.say("Said an hour ago.")
    agent.now += 3600
    agent.say("Said in this run.")
    agent.write()
    assert agent.hook(NativeName.TOOL_PRE) == ["Said in this run."]


@pytest.mark.parametrize("how", ["rewritten", "replaced", "rewritten and longer"])
def test_a_rewritten_transcript_repeats_nothing(agent: Agent, how: str) -> None:
    agent.say("Said in an earlier run.")
    agent.write()
    agent.start("resume")
    agent.say("One.")
    agent.write()
    assert agent.poll() == ["One."]
    kept = agent.path.read_bytes()
    more = agent.line("Two.")
    if how == "replaced":
        append(agent.folder / "other", kept + more)
        (agent.folder / "other").rename(agent.path)
    elif how == "rewritten":
        agent.path.write_bytes(more)
    else:
        agent.path.write_bytes(b"{}\n" * 1000 + kept + more)
    assert agent.poll() == ["Two."]


def test_a_clock_that_was_set_back_loses_no_text_of_a_new_session(agent: Agent) -> None:
    agent.start()
    agent.now -= 3600
    agent.say("Hello.")
    agent.write()
    assert agent.poll() == ["Hello."]


def test_malformed_lines_and_a_huge_result_are_skipped_in_bounded_steps(agent: Agent) -> None:
    agent.start()
    append(
        agent.path,
        b'\xff\xfe{"type":"assistant"\n[]\n\n' + b'{"type":"user","x":"' + b"x" * (5 << 20) + b'"}\n',
    )
    agent.say("Hello.")
    agent.write()
    polls = 1
    while not (found := agent.poll()):
        assert not agent.reader.settled
        polls += 1
    assert found == ["Hello."]
    assert polls == (5 << 20) // BUDGET + 1


def test_the_text_of_a_stop_waits_for_a_transcript_still_being_read(agent: Agent) -> None:
    agent.start()
    append(agent.path, b"{}" + b" " * (3 * BUDGET) + b"\n")
    agent.say("First.")
    agent.say("Last.")
    agent.write()
    agent.stop("Last.")
    found: list[str] = []
    while not agent.reader.settled:
        found += agent.poll(after=GRACE)
    assert found == ["First.", "Last."]


def test_a_subagents_texts_are_attributed_to_it(agent: Agent) -> None:
    """Their texts have an id and a kind, by which the session decides what they may do."""
    agent.start()
    subagent = {"agent_id": "a1", "agent_type": "Explore"}
    agent.hook(NativeName.SUBAGENT_START, **subagent)
    subagent_path = agent.folder / "main" / "subagents" / "agent-a1.jsonl"
    append(subagent_path, agent.line("I look.", isSidechain=True, agentId="a1"))
    (said,) = agent.reader.poll()
    assert (said.text, said.subagent, said.agent_type) == ("I look.", "a1", "Explore")
    assert agent.hook(NativeName.SUBAGENT_STOP, last_assistant_message="I found it.", **subagent) == []
    append(subagent_path, agent.line("I found it.", isSidechain=True, agentId="a1"))
    (said,) = agent.reader.poll()
    assert (said.text, said.subagent) == ("I found it.", "a1")
    assert agent.poll(after=60) == []


def test_a_subagents_transcript_may_be_named_only_at_its_end(agent: Agent) -> None:
    agent.start()
    subagent_path = agent.folder / "elsewhere.jsonl"
    append(subagent_path, agent.line("I found it.", isSidechain=True, agentId="a1"))
    fields = {"agent_id": "a1", "agent_type": "Explore", "last_assistant_message": "I found it."}
    assert agent.hook(
        NativeName.SUBAGENT_STOP, raw={"agent_transcript_path": str(subagent_path)}, **fields
    ) == ["I found it."]
    assert agent.poll(after=60) == []


def test_the_same_text_of_a_subagent_and_of_the_agent_counts_twice(agent: Agent) -> None:
    agent.start()
    agent.hook(NativeName.SUBAGENT_STOP, last_assistant_message="ok", agent_id="a1", agent_type="Explore")
    agent.stop("ok")
    assert [(said.text, said.subagent) for said in agent.reader.close()] == [("ok", "a1"), ("ok", "")]


def test_codex_subagents_have_their_own_rollouts(tmp_path: Path) -> None:
    """A subagent's hooks name its own rollout as the transcript; only SubagentStop names both."""
    now = START
    reader = TranscriptReader("codex", clock=lambda: now)
    main, subagent_path = tmp_path / "main.jsonl", tmp_path / "aside.jsonl"
    subagent = {"agent_id": "a1", "agent_type": "worker"}

    def hook(name: NativeName, path: Path, **fields: Any) -> list[tuple[str, str, str]]:
        said = reader.event(NativeEvent(name, "codex", transcript_path=str(path), **fields))
        return [(each.text, each.subagent, each.agent_type) for each in said]

    hook(NativeName.SESSION_START, main, source="startup")
    append(main, (CAPTURED / "codex-helped.jsonl").read_bytes())
    captured = (CAPTURED / "codex-subagent.jsonl").read_bytes()
    start = captured.index(b'"AgentMessage"')
    append(subagent_path, captured[: captured.rindex(b"\n", 0, start) + 1])
    expected = [("Asking a helper.", "", ""), ("Waiting.", "", ""), ("Back again.", "", "")]
    assert hook(NativeName.SUBAGENT_START, subagent_path, **subagent) == expected
    assert hook(NativeName.PROMPT_SUBMIT, subagent_path, prompt="gamma please", **subagent) == []
    append(subagent_path, captured[captured.rindex(b"\n", 0, start) + 1 :])
    both = {
        "raw": {"agent_transcript_path": str(subagent_path)},
        "last_assistant_message": "Sub final.",
    } | subagent
    found = hook(NativeName.SUBAGENT_STOP, main, **both)
    assert found == [("Sub before tool.", "a1", "worker"), ("Sub final.", "a1", "worker")]
    now += 60
    assert reader.poll() == []


def test_qwens_subagents_are_in_its_own_transcript(tmp_path: Path) -> None:
    """Qwen's hooks and its transcript name a subagent differently; the last text still counts once."""
    now = START
    reader = TranscriptReader("qwen", clock=lambda: now)
    path = tmp_path / "t.jsonl"
    reader.event(NativeEvent(NativeName.SESSION_START, "qwen", transcript_path=str(path), source="startup"))
    append(path, (CAPTURED / "qwen.jsonl").read_bytes())
    said = reader.event(
        NativeEvent(
            NativeName.SUBAGENT_STOP,
            "qwen",
            transcript_path=str(path),
            agent_id="general-purpose-call_014187000007",
            agent_type="general-purpose",
            last_assistant_message="Sub final.",
            raw={"agent_transcript_path": str(path)},
        )
    )
    assert [each.text for each in said if each.subagent] == ["Sub before tool.", "Sub final."]
    now += 60
    assert reader.poll() == []


def test_a_failed_turns_message_is_not_a_text_of_the_agent(agent: Agent) -> None:
    agent.start()
    agent.hook(NativeName.STOP_FAILURE, error="server_error", last_assistant_message="API Error: 529")
    assert agent.poll(after=60) == []


def test_closing_returns_all_remaining_texts(agent: Agent) -> None:
    agent.start()
    agent.say("First.")
    agent.write()
    agent.hook(NativeName.STOP, transcript_path="", last_assistant_message="Last.")
    agent.say("Once more.")
    agent.write()
    assert texts(agent.reader.close()) == ["Once more.", "Last."]
    assert agent.reader.settled


def test_an_unreadable_transcript_is_reported_and_stops_are_used(agent: Agent) -> None:
    agent.path.mkdir()
    agent.start()
    agent.stop("Done.")
    assert agent.poll(after=GRACE) == ["Done."]
    assert "not a regular file" in (agent.problem() or "")


@pytest.mark.parametrize("path", ["", "relative.jsonl", "/x\0y", "/" + "x" * 5_000])
def test_stops_are_used_if_the_path_is_invalid(agent: Agent, path: str) -> None:
    agent.hook(NativeName.SESSION_START, transcript_path=path)
    agent.hook(NativeName.STOP, transcript_path=path, last_assistant_message="Done.")
    assert agent.poll(after=GRACE) == ["Done."]


def test_a_transcript_that_stays_silent_is_reported(agent: Agent) -> None:
    """The transcript is absent, or in an unknown format: each turn's last text remains."""
    agent.start()
    append(agent.path, b'{"kind":"speech","words":"One."}\n')
    agent.stop("One.")
    assert agent.poll(after=GRACE) == ["One."]
    assert agent.problem() is None, "it may be late"
    agent.stop("Two.")
    assert agent.poll(after=SHORT) == ["Two."], "the next wait is short"
    assert agent.problem() == SILENT
    agent.say("Three.")
    agent.write()
    assert agent.poll() == ["Three."]
    assert agent.problem() is None


def test_a_compaction_summary_is_not_a_text(agent: Agent) -> None:
    """A copy of Claude writes it, as a subagent without a kind; it may quote directives."""
    agent.start()
    summary = "<summary>\n@relay:Bob hi\n</summary>"
    subagent_path = agent.folder / "main" / "subagents" / "agent-a1.jsonl"
    append(subagent_path, agent.line(summary, isSidechain=True, agentId="a1"))
    raw = {"agent_transcript_path": str(subagent_path)}
    assert agent.hook(NativeName.SUBAGENT_STOP, last_assistant_message=summary, agent_id="a1", raw=raw) == []
    assert agent.poll(after=60) == []


def test_the_readers_memory_is_bounded(agent: Agent) -> None:
    agent.start()
    for number in range(200):
        subagent = {"agent_id": f"a{number}", "agent_type": "Explore"}
        agent.hook(NativeName.SUBAGENT_STOP, last_assistant_message="x", **subagent)
    assert len(agent.reader._transcripts) < 50
    assert len(agent.reader._speakers) < 100
