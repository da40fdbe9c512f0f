"""The end of a session: the closing prompt, the time to act on it, and how an agent is made to end."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from agents.hooked import Claude
from session.fake_agent import FakeAgent, events, project, ps, settings
from support import Relay, processes_of, wait_until

CLOSING = """
from relay import on

@on("session_end")
def ask(reason, ctx):
    return "Save what you learned." if reason == "stop" else None
"""


def memories(relay: Relay, name: str) -> list[str]:
    return [m["text"] for m in json.loads(relay("memory", "list", "--json", "--name", name).stdout)]


@pytest.fixture(scope="module")
def folder(shared: Relay) -> Path:
    return project(shared, CLOSING)


@pytest.mark.parametrize("how", ["stop", "SIGTERM"])
def test_the_agent_acts_on_the_closing_prompt_before_it_ends(shared: Relay, folder: Path, how: str) -> None:
    """R52: its directives still run; a stop and a SIGTERM to the session have the same effect."""
    alice = FakeAgent(shared, how).wrap(
        "--think",
        "0.3",
        "--think",
        "0.3",
        "--reply",
        "Save what you learned",
        "Let me think.\n@memory:save The mat hides a key\n",
        cwd=folder,
    )
    wait_until(lambda: alice.state() == "ready")
    if how == "stop":
        assert shared("stop", how).stdout == "stop has ended.\n"
    else:
        os.kill(ps(shared)[0]["session_pid"], signal.SIGTERM)
        wait_until(lambda: not ps(shared))
    assert memories(shared, how) == ["The mat hides a key"]
    assert ("closing ask (on session_end)", "Save what you learned.") in alice.texts()


def test_prompt_on_end_uses_the_built_in_prompt(relay: Relay) -> None:
    """R52, R63."""
    folder = project(
        relay, "from relay import RelayConfig\nconfig = RelayConfig(memory={'promptOnEnd': True})\n"
    )
    FakeAgent(relay, "Alice").wrap(
        "--reply", "session is about to end", "@memory:save It ended well\n", cwd=folder
    )
    relay("stop", "Alice")
    assert memories(relay, "Alice") == ["It ended well"]


def test_an_agent_that_ignores_the_closing_prompt_is_killed_after_its_time(relay: Relay) -> None:
    """R52."""
    settings(relay, "closing_seconds = 8\nstop_seconds = 0.3\n")
    deaf = ("--deaf", "SIGTERM", "--deaf", "SIGHUP", "--think", "1000", "--reply", "Save what", "")
    alice = FakeAgent(relay, "Alice").wrap(*deaf, cwd=project(relay, CLOSING))
    relay("stop", "Alice")
    alice.receives("Save what you learned.")
    assert alice.events("session_end")[0]["code"] == 128 + signal.SIGKILL
    wait_until(lambda: not [c for c in processes_of(relay.home).values() if "session_fake" in c])


def test_relay_does_not_wait_for_an_agent_that_waits_for_input(relay: Relay) -> None:
    """The agent has read the prompt and waits for its next line of input, so no answer will follow."""
    settings(relay, "closing_seconds = 600\n")
    listen = "import sys\nfor line in sys.stdin: pass"
    relay("wrap", "-d", "-n", "Alice", sys.executable, "-c", listen, cwd=project(relay, CLOSING))
    assert relay("stop", "Alice").stdout == "Alice has ended.\n"
    assert [(e["kind"], e["result"]) for e in events(relay) if e["event"] == "injection"] == [
        ("closing", "injected")
    ]


def test_stop_now_kills_without_a_closing_prompt(shared: Relay, folder: Path) -> None:
    alice = FakeAgent(shared, "Alice").wrap("--deaf", "SIGTERM", cwd=folder)
    assert shared("stop", "--now", "Alice").stdout == "Alice has ended.\n"
    assert alice.events("session_end")[0]["code"] == 128 + signal.SIGKILL


def test_a_prompting_agent_gets_no_closing_prompt(relay: Relay) -> None:
    """Typed text would answer its question."""
    settings(relay, "closing_seconds = 0.3\n")
    alice = FakeAgent(relay, "Alice").wrap(cwd=project(relay, CLOSING))
    alice.say("Delete everything? [y/N] ", end="")
    wait_until(lambda: alice.state() == "prompting")
    relay("stop", "Alice")
    assert alice.received == ""
    assert [(e["kind"], e["result"]) for e in alice.events("injection")] == [("closing", "untyped")]


def test_stop_takes_either_names_or_all(relay: Relay) -> None:
    for name in ("Alice", "Bob"):
        FakeAgent(relay, name).wrap()
    done = relay("stop", "--all")
    assert sorted(done.stdout.splitlines()) == ["Alice has ended.", "Bob has ended."]
    assert ps(relay) == []
    assert "No session is running" in relay("ps").stdout
    assert relay("stop", "--all").stdout == "No agent is running.\n"
    for wrong in (("stop",), ("stop", "--all", "Alice")):
        done = relay(*wrong, check=False)
        assert done.returncode == 2
        assert "name the sessions to stop, or use --all" in done.stderr
    done = relay("stop", "Alise", check=False)
    assert (done.returncode, "there is no session called 'Alise'" in done.stderr) == (1, True)


def test_handlers_are_called_when_the_agent_exits_by_itself(relay: Relay) -> None:
    folder = project(
        relay,
        """
from pathlib import Path
from relay import on

@on("session_end")
def ended(reason, ctx):
    ctx.inject("never read")
    Path(__file__).with_name("reason").write_text(reason)
""",
    )
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.say("@memory:save last words")
    alice.exit(7)
    wait_until(lambda: not ps(relay))
    assert alice.events("session_end")[0]["code"] == 7
    assert (folder / "reason").read_text() == "exit"
    assert memories(relay, "Alice") == ["last words"]


def test_processes_started_by_the_agent_are_ended(relay: Relay, tmp_path: Path) -> None:
    script = tmp_path / "agent.sh"
    script.write_text("trap '' HUP TERM\nsleep 1000 &\nsleep 1000 & echo ready\nexec cat\n")
    relay("wrap", "-d", "-n", "Alice", "sh", script)
    wait_until(lambda: len([c for c in processes_of(relay.home).values() if c == "sleep 1000"]) == 2)
    settings(relay, "")
    relay("stop", "--now", "Alice")
    wait_until(lambda: not [c for c in processes_of(relay.home).values() if c == "sleep 1000"])


def test_the_log_has_no_warnings_or_errors(relay: Relay) -> None:
    """Every store is closed, and no callback fails."""
    env = {"PYTHONWARNINGS": "always::ResourceWarning"}
    alice = FakeAgent(relay, "Alice").wrap(env=env)
    alice.say("@memory:save a\n@relay:Alice b")
    alice.receives("is the sender.")
    relay("stop", "Alice")
    assert (relay.home / "state" / "session.log").read_text() == ""


def test_the_next_run_removes_the_bridge_files_of_a_killed_shim(relay: Relay) -> None:
    """The files of a run are found by the agent's name, so they do not pile up."""
    claude = Claude(relay).wrap()
    left = claude.settings.parent
    (session,) = ps(relay)
    os.kill(session["terminal_pid"], signal.SIGKILL)
    wait_until(lambda: session["agent_pid"] not in processes_of(relay.home) and not ps(relay))
    assert left.exists()
    (claude.folder / "strings").unlink()
    claude.wrap().exit()
    wait_until(lambda: not list(left.parent.iterdir()))
