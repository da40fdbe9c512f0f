"""relay.config.py in real sessions: trust, errors in the file, failing handlers, and changes."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from relay.home import Home
from relay.hooks.trust import Trust
from session.fake_agent import FakeAgent, project, ps, settings
from support import Relay, session_patch, wait_until

pytestmark = pytest.mark.own_team

GREETING = """
from relay import on

@on("session_start")
def greet(event, ctx):
    ctx.inject("The configuration runs.")
"""


def test_an_untrusted_file_does_not_run_and_is_reported_in_one_line(relay: Relay) -> None:
    """R57."""
    folder = project(relay, GREETING, trust=False)
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    notice = alice.notice("is not trusted, so it does not run")
    assert f"`relay trust {folder}/relay.config.py`" in notice
    assert "\n" not in notice
    alice.say("@memory:save the session runs")
    assert "The configuration runs." not in alice.receives("Saved to memory")
    relay("stop", "Alice")
    relay("trust", folder / "relay.config.py")
    FakeAgent(relay, "Bob").wrap(cwd=folder).receives("The configuration runs.")


def test_naming_a_file_does_not_trust_it(shared: Relay, tmp_path: Path) -> None:
    file = tmp_path / "relay.config.py"
    file.write_text(GREETING)
    anna = FakeAgent(shared, "Anna").wrap(options=("--config", file))
    anna.notice("is not trusted, so it does not run")
    shared("trust", file)
    FakeAgent(shared, "Ben").wrap(options=("--config", file)).receives("The configuration runs.")


def test_the_users_own_file_needs_no_trust(relay: Relay) -> None:
    """R57: this is the file in the configuration folder."""
    (relay.home / "config").mkdir(exist_ok=True)
    (relay.home / "config" / "relay.config.py").write_text(GREETING)
    FakeAgent(relay, "Alice").wrap().receives("The configuration runs.")


DEPLOY = """
from relay import pattern

@pattern("deploy")
def deploy(target, message, ctx):
    return {"inject": f"Deployed {message} to {target}."}
"""


def test_what_was_said_before_a_handler_existed_is_never_given_to_it(relay: Relay) -> None:
    """B2: a reload reads the output again."""
    folder = project(relay, "", trust=False)
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.say("@deploy:staging v1")
    alice.say("@memory:save the session runs")
    alice.receives("Saved to memory")
    (folder / "relay.config.py").write_text(DEPLOY)
    relay("trust", folder / "relay.config.py")
    relay("reload", "Alice")
    alice.say("@deploy:staging v2")
    alice.receives("Deployed v2 to staging.")
    relay("reload", "Alice")
    alice.say("@deploy:staging v3")
    alice.receives("Deployed v3 to staging.")
    assert "Deployed v1" not in alice.received
    assert alice.received.count("Deployed v2") == 1


def test_what_was_not_heard_before_a_reload_is_never_acted_on(relay: Relay) -> None:
    """B2: by a setting that let only relay's own directives through, or named another prefix."""
    settings = relay.home / "config" / "relay.toml"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text('directives = "builtin"\n')
    alice = FakeAgent(relay, "Alice").wrap(cwd=project(relay, DEPLOY, trust=True))
    alice.say("@deploy:staging v1")
    alice.say("@memory:save the session runs")
    alice.receives("Saved to memory")
    settings.write_text("")
    relay("reload", "Alice")
    alice.say("!deploy:staging v2")
    alice.say("@deploy:staging v3")
    alice.receives("Deployed v3 to staging.")
    settings.write_text('prefix = "!"\n')
    relay("reload", "Alice")
    alice.say("!deploy:staging v4")
    alice.receives("Deployed v4 to staging.")
    assert re.findall("Deployed (v.)", alice.received) == ["v3", "v4"]


def test_a_mistake_before_a_reload_leaves_the_last_good_handlers_in_force(relay: Relay) -> None:
    """B3: also after the session was killed; `relay reload` says so, and fails."""
    folder = project(relay, DEPLOY, trust=True)
    file = folder / "relay.config.py"
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.say("@deploy:staging v1")
    alice.receives("Deployed v1 to staging.")
    file.write_text(DEPLOY + "1 / 0\n")
    Trust(Home.from_env(relay.environment)).grant(file, file.read_bytes())
    done = relay("reload", "Alice", check=False)
    assert done.returncode == 1
    assert f"{file}:7: loading failed with ZeroDivisionError" in done.stderr
    assert "Its former content stays in force." in done.stderr
    alice.notice("Its former content stays in force.")
    alice.say("@deploy:staging v2")
    alice.receives("Deployed v2 to staging.")
    os.kill(ps(relay)[0]["session_pid"], signal.SIGKILL)
    alice.say("@deploy:staging v3")
    alice.receives("Deployed v3 to staging.")
    file.write_text(DEPLOY.replace("Deployed", "Shipped"))
    assert relay("reload", "Alice", check=False).returncode == 1  # nobody has trusted it
    relay("trust", file)
    relay("reload", "Alice")
    alice.say("@deploy:staging v4")
    alice.receives("Shipped v4 to staging.")


def test_a_module_in_handlers_is_trusted_kept_and_given_up_like_the_file(relay: Relay) -> None:
    folder = project(relay, GREETING, trust=True)
    handlers = folder / "handlers"
    handlers.mkdir()
    for name in ("deploy", "ship"):
        (handlers / f"{name}.py").write_text(DEPLOY.replace("deploy", name).replace("Deployed", name))
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.receives("The configuration runs.")
    alice.notice(f"`relay trust {handlers / 'deploy.py'}`")
    assert relay("trust", cwd=folder).stdout.count("Trusted ") == 3
    relay("reload", "Alice")
    alice.say("@deploy:staging v1")
    alice.receives("deploy v1 to staging.")
    (handlers / "deploy.py").write_text("1 / 0\n")
    (handlers / "ship.py").unlink()
    assert "deploy.py is not trusted" in relay("reload", "Alice", check=False).stderr
    alice.notice("ship.py is gone; what it had registered is no longer active.")
    alice.say("@ship:staging v2")
    alice.say("@deploy:staging v2")
    alice.receives("deploy v2 to staging.")
    assert "ship v2" not in alice.received


def test_handlers_that_cannot_be_loaded_now_come_back_with_the_next_session(relay: Relay) -> None:
    folder = project(relay, "import helper\n" + DEPLOY, trust=False)
    (folder / "helper.py").write_text("")
    relay("trust", folder / "relay.config.py")
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    (folder / "helper.py").write_text("1 / 0\n")
    done = relay("reload", "Alice", check=False)
    assert done.returncode == 1 and "Its former content cannot be loaded either" in done.stderr
    (folder / "helper.py").write_text("")
    relay("reload", "Alice")
    alice.say("@deploy:staging v1")
    alice.receives("Deployed v1 to staging.")
    (folder / "relay.config.py").unlink()
    relay("reload", "Alice")
    alice.notice("relay.config.py is gone; what it had registered is no longer active.")


def test_a_projects_file_does_not_replace_the_users_own(relay: Relay) -> None:
    """B1: neither an untrusted one, nor a trusted one, nor one with a mistake."""
    (relay.home / "config").mkdir(exist_ok=True)
    (relay.home / "config" / "relay.config.py").write_text(GREETING)
    folder = project(relay, GREETING.replace("The configuration", "The project"), trust=False)
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.receives("The configuration runs.")
    alice.notice("is not trusted, so it does not run")
    relay("trust", folder / "relay.config.py")
    bob = FakeAgent(relay, "Bob").wrap(cwd=folder)
    bob.receives("The configuration runs.")
    bob.receives("The project runs.")
    (folder / "relay.config.py").write_text("1 / 0\n")
    file = folder / "relay.config.py"
    Trust(Home.from_env(relay.environment)).grant(file, file.read_bytes())
    carol = FakeAgent(relay, "Carol").wrap(cwd=folder)
    carol.notice("ZeroDivisionError")
    carol.receives("The configuration runs.")


@pytest.mark.parametrize(
    ("config", "line", "words"),
    [("import os\ndef f(:\n", 2, "this is not Python"), ("1 / 0\n", 1, "ZeroDivisionError")],
    ids=["syntax", "raises"],
)
def test_an_error_in_the_file_is_reported_with_its_line_and_the_session_runs(
    relay: Relay, config: str, line: int, words: str
) -> None:
    """All mistakes are in tests/hooks/test_config_file.py."""
    folder = project(relay, config, trust=False)
    file = folder / "relay.config.py"
    Trust(Home.from_env(relay.environment)).grant(file, file.read_bytes())  # `relay trust` refuses some
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    notice = alice.notice(words)
    assert notice.startswith(f"{folder}/relay.config.py:{line}: ")
    assert notice.endswith("The session runs without it.")
    alice.say("@memory:save the session runs")
    alice.receives("Saved to memory")


FAULTS = """
import asyncio, sys, time
from relay import on, pattern

@pattern("raise")
def raising(target, message): raise ValueError("no such host")

@pattern("exit")
def exiting(target, message): sys.exit(3)

@pattern("print")
def printing(target, message): print("hello from a handler")

@pattern("nonsense")
def nonsense(target, message): return 42

@pattern("hang")
async def hanging(target, message): await asyncio.sleep(1000)

@pattern("block")
async def blocking(target, message): time.sleep(1000)

@pattern("sleep")
def sleeping(target, message): time.sleep(1000)

@on("output")
def failing(output): raise RuntimeError("of an event")

@pattern("work")
def working(target, message): return f"worked: {message}"
"""


LIMIT = """
import contextvars
from relay.hooks.runner import Runner
run, seconds = Runner._run_user, contextvars.ContextVar("seconds")
async def run_user(self, handler, function):
    stuck = handler.function.__name__ in ("hanging", "blocking", "sleeping")
    seconds.set(0.3 if stuck else 60.0)
    return await run(self, handler, function)
Runner._run_user = run_user
Runner._timeout = property(lambda self: seconds.get(), lambda self, value: None)
"""
"""A short limit for hung handlers only; on a slow machine, others would reach it as well."""


@pytest.fixture(scope="module")
def faults(shared: Relay) -> Path:
    folder = shared.home / "faults"
    folder.mkdir()
    (folder / "relay.config.py").write_text(FAULTS)
    shared("trust", cwd=folder)
    return folder


FAULTY = {
    # its namespace: the kind of its problem, the notice, and the answer to the agent
    "raise": ("raised", "raised ValueError: no such host", "its handler failed: ValueError: no such host"),
    "exit": ("exited", "called sys.exit(3)", "its handler tried to exit"),
    "print": ("printed", "printed 'hello from a handler'", None),
    "nonsense": ("bad_result", "returned 42", "its handler returned something invalid"),
    "hang": ("timed_out", "did not finish within 0.3 s", "its handler did not answer within 0.3 s"),
    "sleep": ("timed_out", "did not finish within 0.3 s", "its handler did not answer within 0.3 s"),
    "block": ("blocked", "blocked the event loop", "its handler did not answer within 0.3 s"),
}


def test_a_faulty_handler_is_reported_once_and_the_session_continues(
    faults: Path, shared: Relay, subtests: pytest.Subtests
) -> None:
    alice = FakeAgent(shared, "Faulty").wrap(cwd=faults, env=session_patch(LIMIT))
    for count, (namespace, (_, notice, answer)) in enumerate(FAULTY.items(), 1):
        with subtests.test(namespace):
            os.truncate(alice.folder / "received", 0)
            for number in (1, 2):
                alice.say(f"@{namespace}:x now\n@work:x {namespace} {number}")
                alice.receives(f"worked: {namespace} {number}")
                if answer is not None:
                    alice.receives(answer)
            alice.notice(notice)
            reported = count + 1  # and that of the event
            wait_until(lambda: len(alice.events("handler_problem")) == reported)  # noqa: B023
            wait_until(lambda: len(alice.events("directive")) == 4 * count)  # noqa: B023
    alice.notice("of an event")
    problems = alice.events("handler_problem")
    assert [p["kind"] for p in problems if "of an event" not in p["problem"]] == [
        kind for kind, *_ in FAULTY.values()
    ]
    assert [p["kind"] for p in problems if "of an event" in p["problem"]] == ["raised"]
    assert all(p["problem"].startswith("relay.config.py:") for p in problems)
    alice.exit()


def test_an_edit_of_the_file_is_reported_once_and_has_no_effect_yet(relay: Relay) -> None:
    folder = project(relay, GREETING.replace("session_start", "idle"))
    settings(relay, "idle_seconds = 0.05\n")
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.receives("The configuration runs.")
    (folder / "relay.config.py").write_text(
        GREETING.replace("session_start", "idle").replace("runs", "changed")
    )
    notice = alice.notice("has changed; this session keeps the version it started with")
    assert "read it, then run `relay trust` and `relay reload`" in notice
    count = alice.received.count("The configuration runs.")
    alice.say("something")
    wait_until(lambda: alice.received.count("The configuration runs.") > count)
    assert "changed" not in alice.received
    assert len([e for e in alice.events("notice") if "has changed" in e["text"]]) == 1


def test_a_hung_handler_does_not_keep_the_session_from_ending(relay: Relay) -> None:
    settings(relay, "handler_seconds = 0.3\n")
    alice = FakeAgent(relay, "Alice").wrap(cwd=project(relay, FAULTS))
    alice.say("@sleep:x now")
    wait_until(lambda: alice.events("directive"))
    alice.exit(0)
    wait_until(alice.ended)
    assert alice.events("session_end")[0]["code"] == 0
