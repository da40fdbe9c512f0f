"""The usage of an agent in `relay ps`, `relay explain` and `relay usage`, across all its sessions."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agents.hooked import Claude
from relay.agents import usage_log
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.prices import Prices
from relay.agents.usage_log import UsageLog
from relay.agents.usage_reader import UsageReader
from relay.eventbus import Event, EventBus
from relay.features.usage import UsageTracker
from relay.lifecycle import Describe, LastWords, SessionBegan
from relay.session.features import FEATURES
from relay.state.events import HooksAlive, PromptSubmitted, TurnBegan
from relay.state.turn import Turn
from relay.storage.progress import Progress
from relay.terminal.events import KeysTyped, KeysWritten
from session.transcript import Transcript
from support import Relay, wait_until

pytestmark = pytest.mark.own_team


class UsageTranscript(Transcript):
    """A transcript with the tokens of each message."""

    def use(self, input: int, output: int, model: str = "claude-opus-4-8") -> None:
        usage = {"input_tokens": input, "output_tokens": output}
        content = [{"type": "text", "text": "Done."}]
        number = self.count + 1
        self.say("", message={"id": f"m{number}", "model": model, "usage": usage, "content": content})


@pytest.fixture
def transcript(relay: Relay) -> UsageTranscript:
    return UsageTranscript(relay.home / "transcript.jsonl")


def turn(
    claude: Claude, transcript: UsageTranscript, input: int, output: int, model: str = "claude-opus-4-8"
) -> None:
    path = str(transcript.path)
    claude.fire("UserPromptSubmit", prompt="do it", transcript_path=path, session_id="s")
    transcript.use(input, output, model)
    claude.fire("Stop", last_assistant_message="Done.", transcript_path=path, session_id="s")


def shown(relay: Relay) -> tuple[int | None, float | None]:
    (session,) = json.loads(relay("ps", "--json").stdout)
    return session.get("tokens"), session.get("cost")


def usage(relay: Relay, *arguments: str) -> dict[str, Any]:
    return dict(json.loads(relay("usage", "--json", *arguments).stdout))


def test_usage_is_shown_after_each_turn_and_stays_in_the_log(
    relay: Relay, transcript: UsageTranscript
) -> None:
    claude = Claude(relay).wrap()
    claude.fire("SessionStart", source="startup", transcript_path=str(transcript.path), session_id="s")
    assert shown(relay) == (0, 0)
    turn(claude, transcript, 1_000_000, 1000)
    wait_until(lambda: shown(relay) == (1_001_000, 5.025), message=lambda: str(shown(relay)))
    turn(claude, transcript, 0, 1000, "unheard-of")
    wait_until(lambda: shown(relay) == (1_002_000, 5.025), message=lambda: str(shown(relay)))
    found = json.loads(relay("explain", "Ann", "--json").stdout)["usage"]
    assert found["turns"] == 2
    assert found["unpriced_tokens"] == 1000
    assert found["models"]["unheard-of"]["cost"] is None
    said = relay("explain", "Ann").stdout
    assert "in 2 turns: $5.03 at list prices, not counting 1000 tokens of unknown price" in said
    claude.exit()
    wait_until(lambda: json.loads(relay("ps", "--json").stdout) == [])
    (agent,) = usage(relay)["agents"]
    assert (agent["name"], agent["agent"], agent["account"]) == ("Ann", "claude", "default")
    assert (agent["turns"], agent["tokens"]["total"], agent["cost"]) == (2, 1_002_000, 5.025)
    assert agent["unpriced_tokens"] == 1000


def test_a_turn_that_relay_begins_is_counted_once(tmp_path: Path) -> None:
    """C14: no key has been typed before; Codex's hooks begin to report with its first prompt."""

    def session(*, resumed: bool) -> Callable[..., Awaitable[int]]:
        bus, turn = EventBus(), Turn(lambda: 0.0)
        reader = cast(Any, SimpleNamespace(resume=lambda notes: None, models={}, limits=None))
        log = UsageLog(tmp_path / "usage.jsonl", "s", "Ann", "default", agent="codex", account="default")
        bus.add(UsageTracker(bus, turn, reader, log, Progress(tmp_path / "progress", resumed=resumed)))

        async def tell(*events: Event) -> int:
            for event in events:
                bus.publish(event)
            (described,) = await bus.ask_all(Describe(brief=False))
            return int(described["usage"]["turns"])

        bus.publish(SessionBegan())
        return tell

    typed, again = KeysWritten(b"do it\r", 10), KeysTyped(b"and this\r", 20)
    ours, theirs, began = PromptSubmitted(by_user=False), PromptSubmitted(by_user=True), TurnBegan()

    async def main() -> None:
        tell = session(resumed=False)
        assert await tell(ours, began, typed) == 1
        assert await tell(HooksAlive(True), began) == 1  # its hook reports the same prompt
        tell = session(resumed=True)
        assert await tell(typed) == 1
        assert await tell(again, theirs, began) == 2
        assert await tell(ours, began, KeysWritten(b"more\r", 30)) == 3
        tell = session(resumed=True)
        assert await tell(typed, again, theirs, began) == 3  # it reads the ring again

    asyncio.run(main())


def test_a_replacement_session_counts_nothing_twice(relay: Relay, transcript: UsageTranscript) -> None:
    claude = Claude(relay).wrap()
    claude.fire("SessionStart", source="startup", transcript_path=str(transcript.path), session_id="s")
    turn(claude, transcript, 100, 10)
    wait_until(lambda: shown(relay)[0] == 110)
    wait_until(lambda: usage(relay)["agents"])
    (session,) = json.loads(relay("ps", "--json").stdout)

    os.kill(session["session_pid"], signal.SIGKILL)
    transcript.use(200, 20)  # while no session reads
    wait_until(lambda: shown(relay)[0] == 330, message=lambda: str(shown(relay)))
    turn(claude, transcript, 300, 30)
    wait_until(lambda: shown(relay)[0] == 660, message=lambda: str(shown(relay)))
    claude.exit()
    wait_until(lambda: json.loads(relay("ps", "--json").stdout) == [])
    (agent,) = usage(relay)["agents"]
    assert (agent["tokens"]["total"], agent["turns"]) == (660, 2)


def test_a_restarted_agent_starts_from_zero(relay: Relay, transcript: UsageTranscript) -> None:
    claude = Claude(relay).wrap()
    claude.fire("SessionStart", source="startup", transcript_path=str(transcript.path), session_id="s")
    turn(claude, transcript, 100, 10)
    wait_until(lambda: shown(relay)[0] == 110)
    (claude.folder / "strings").unlink()
    relay("restart", "Ann")
    wait_until((claude.folder / "strings").exists)
    wait_until(lambda: shown(relay)[0] == 0)
    claude.fire("SessionStart", source="resume", transcript_path=str(transcript.path), session_id="s")
    turn(claude, transcript, 200, 20)
    wait_until(lambda: shown(relay)[0] == 220, message=lambda: str(shown(relay)))
    claude.exit()
    wait_until(lambda: json.loads(relay("ps", "--json").stdout) == [])
    (agent,) = usage(relay)["agents"]  # both runs
    assert agent["tokens"]["total"] == 330


@pytest.mark.own_home
def test_a_program_without_a_transcript_has_no_usage(relay: Relay) -> None:
    relay("wrap", "-d", "-n", "Ann", "cat")
    assert shown(relay) == (None, None)
    assert relay("usage").stdout == "No agent has used any tokens yet.\n"


def test_an_invalid_price_list_is_reported_and_hides_only_the_costs(
    relay: Relay, transcript: UsageTranscript
) -> None:
    path = Path(relay.home, "config", "prices.toml")
    path.parent.mkdir(exist_ok=True)
    path.write_text("[models]\n'x' = 3\n")
    claude = Claude(relay).wrap()
    claude.fire("SessionStart", source="startup", transcript_path=str(transcript.path), session_id="s")
    turn(claude, transcript, 100, 10)
    wait_until(lambda: shown(relay) == (110, None))
    refused = relay("usage", check=False)
    assert refused.returncode == 1
    assert f"{path}: the price of 'x' is not a table" in refused.stderr


def test_usage_is_a_feature() -> None:
    assert "usage" in FEATURES


def test_changed_limits_are_logged_once_even_without_usage(tmp_path: Path) -> None:
    """For example, a provider may refuse a request because of a limit."""
    rollout, path = tmp_path / "rollout.jsonl", tmp_path / "usage.jsonl"
    window = {"used_percent": 100.0, "window_minutes": 300, "resets_at": 1_800_000_000.0}
    payload = {"type": "token_count", "info": None, "rate_limits": {"primary": window}}
    line = {"timestamp": "2026-11-22T06:00:00Z", "type": "event_msg", "payload": payload}
    rollout.write_text(json.dumps(line) + "\n")

    async def scenario() -> None:
        reader = UsageReader("codex", Prices("2026-01-01", {}), began=0)
        reader.event(NativeEvent(NativeName.TOOL_PRE, "codex", transcript_path=str(rollout), session_id="s"))
        log = UsageLog(path, "s1", "Ann", "web", agent="codex", account="work")
        turn, progress = (
            cast(Turn, SimpleNamespace(active=False)),
            Progress(tmp_path / "progress", resumed=False),
        )
        tracker = UsageTracker(EventBus(), turn, reader, log, progress)
        for _ in range(2):
            await tracker.read_to_the_end(LastWords(), ())

    asyncio.run(scenario())
    (entry,) = usage_log.read(path)
    assert (entry.account, entry.models) == ("work", {})
    assert entry.limits is not None and entry.limits.public()["windows"] == (window,)
