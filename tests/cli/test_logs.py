"""`relay logs`: an agent's output, during its run and afterwards, and who may read it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from session.fake_agent import FakeAgent, events, ps, settings
from session.test_session_guard import LISTENING, Agent
from session.test_session_replaced import entry, replaced
from support import Relay, wait_until

TOKEN = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
KEY = """\
-----BEGIN RSA PRIVATE KEY-----
MIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf9Cnzj4p4WGeKLs1Pt8Qu
-----END RSA PRIVATE KEY-----"""


def logged(relay: Relay, *arguments: str) -> list[str]:
    return relay("logs", *arguments).stdout.splitlines()


def say_and_wait(agent: FakeAgent, text: str) -> None:
    """Have the agent say `text`, and wait until relay has read it."""
    agent.say(text)
    last = text.splitlines()[-1]
    wait_until(lambda: last in logged(agent.relay, agent.name, "--all"), message=agent.log)


def test_output_is_shown_in_order_and_without_control_characters(shared: Relay) -> None:
    alice = FakeAgent(shared, "Alice").wrap()
    say_and_wait(alice, "one\ntwo \x1b[31mred\x1b[0m\n\nr\u202eeversed\nlast")
    assert logged(shared, "alice") == ["one", "two red", "", "r<U+202E>eversed", "last"]
    run = shared("logs", "-n", "2", "Alice")
    assert (run.stdout.splitlines(), run.stderr) == (
        ["r<U+202E>eversed", "last"],
        "(3 earlier lines omitted; --all shows all.)\n",
    )
    first, *_ = map(json.loads, shared("logs", "--json", "Alice").stdout.splitlines())
    assert first["text"] == "one" and isinstance(first["time"], float)
    assert shared("logs", "--times", "-n", "1", "Alice").stdout[2:9:3] == ":: "
    row = entry(shared, "Alice")
    assert row["last_line"] == "last"


def test_secrets_are_redacted_even_across_lines(shared: Relay) -> None:
    bea = FakeAgent(shared, "Bea").wrap()
    say_and_wait(bea, f"{KEY}\nthe token is {TOKEN}\nover")
    text = shared("logs", "Bea").stdout
    assert "the token is [secret" in text
    assert "MIIBOg" not in text and TOKEN not in text
    for path in (shared.home / "state" / "recordings").rglob("*.log.jsonl"):
        assert TOKEN not in path.read_text() and "MIIBOg" not in path.read_text()
    bea.say(f"it is {TOKEN}")
    wait_until(lambda: entry(shared, "Bea")["last_line"] == "it is [secret: github-token]", message=bea.log)


def test_the_log_of_the_last_run_is_kept_after_the_agent_has_ended(shared: Relay) -> None:
    cleo = FakeAgent(shared, "Cleo").wrap()
    say_and_wait(cleo, "of the first run")
    cleo.exit()
    wait_until(lambda: "Cleo" not in shared("ps").stdout)
    assert logged(shared, "Cleo") == ["of the first run"]
    assert logged(shared, "-f", "Cleo") == ["of the first run"], "no more output is coming"
    again = FakeAgent(shared, "Cleo").wrap()
    assert logged(shared, "Cleo") == [], "there is no output yet"
    say_and_wait(again, "of the second")
    assert logged(shared, "Cleo") == ["of the second"]


def test_a_replacement_session_logs_each_line_once(shared: Relay) -> None:
    dora = FakeAgent(shared, "Dora").wrap()
    wanted = []
    before = entry(shared, "Dora")
    for number in range(4):
        wanted += [f"{number} before", f"{number} after"]
        say_and_wait(dora, f"{number} before")
        dora.say(f"{number} after")
        os.kill(before["session_pid"], signal.SIGKILL)
        before = replaced(shared, before)
    say_and_wait(dora, "last")
    assert logged(shared, "Dora") == [*wanted, "last"]
    assert entry(shared, "Dora")["last_line"] == "last"


def test_follow_continues_across_a_restart_until_the_agent_ends(shared: Relay) -> None:
    eve = FakeAgent(shared, "Eve").wrap()
    say_and_wait(eve, "one")
    with subprocess.Popen(
        [*shared.command, "logs", "-f", "Eve"], env=shared.environment, stdout=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "one\n"
        eve.say("two")
        assert following.stdout.readline() == "two\n"
        shared("restart", "Eve")
        eve.say("three")
        assert following.stdout.readline() == "three\n"
        eve.say("four")
        eve.exit()
        assert following.stdout.read() == "four\n"
        assert following.wait() == 0


def test_the_log_of_a_hung_session_can_be_read(shared: Relay) -> None:
    fay = FakeAgent(shared, "Fay").wrap()
    say_and_wait(fay, "before it hung")
    pid = entry(shared, "Fay")["session_pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert logged(shared, "Fay") == ["before it hung"]
    finally:
        os.kill(pid, signal.SIGCONT)


def test_without_recordings_there_is_no_log(relay: Relay) -> None:
    settings(relay, 'record = "never"\n')
    alice = FakeAgent(relay, "Alice").wrap()
    alice.say("hello")
    wait_until(lambda: ps(relay)[0]["last_line"] == "hello")
    run = relay("logs", "Alice", check=False)
    assert run.returncode == 1
    assert "there is no log of Alice: the `record` setting is 'never'" in run.stderr
    assert "`relay peek Alice`" in run.stderr
    assert not list(relay.home.rglob("*.log.jsonl"))


def test_an_unknown_name_is_reported_with_a_suggestion(relay: Relay) -> None:
    alice = FakeAgent(relay, "Alice").wrap()
    alice.exit()
    wait_until(lambda: not ps(relay))
    run = relay("logs", "Alise", check=False)
    assert run.returncode == 1 and "there is no log of 'Alise'. Did you mean Alice?" in run.stderr


LOOKS = "for name in Mallory Bob; do for what in peek logs; do relay $what $name || echo refused; done; done"


@pytest.mark.parametrize("look", ["itself", "team"])
def test_an_agent_may_look_at_itself_and_if_allowed_at_its_team(
    relay: Relay, tmp_path: Path, look: str
) -> None:
    settings(relay, f'look = "{look}"\n')
    bob = FakeAgent(relay, "Bob").wrap()
    say_and_wait(bob, "Bob's words")
    FakeAgent(relay, "Cy", team="other").wrap()
    agent = Agent(relay, tmp_path, f"{LISTENING}{LOOKS}; relay peek -t other Cy || echo refused")
    expected = ["Bob's words"] * 2 if look == "team" else ["refused"] * 2
    assert agent.out.split("\n") == [*expected, "refused", ""]
    refused = [e["operation"] for e in events(relay) if e["event"] == "refused"]
    assert refused == ([] if look == "team" else ["peek", "logs"]) + ["peek"]


def test_an_untrusted_project_cannot_expose_its_agents(relay: Relay, tmp_path: Path) -> None:
    project = relay.home / "project"
    project.mkdir()
    (project / "relay.toml").write_text('look = "team"\n')
    bob = FakeAgent(relay, "Bob").wrap(cwd=project)
    say_and_wait(bob, "Bob's words")
    agent = Agent(relay, tmp_path, "relay peek Bob")
    assert (agent.code, agent.out) == (1, "")
    assert "an agent may not request 'peek'" in agent.err
