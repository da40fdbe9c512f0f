"""What users get to test their handlers: `relay_session`, in a pytest of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hooks.test_hooks_documented import HOOKS, examples
from relay import RelayConfig
from relay.errors import ConfigError
from relay.hooks.context import Context
from relay.hooks.result import HookResult
from relay.testing import HandlerSession

Session = Callable[..., HandlerSession]


def test_the_documented_test_passes_in_a_users_project_and_fails_for_another_answer(tmp_path: Path) -> None:
    handlers, test = examples(HOOKS)[0], next(each for each in examples(HOOKS) if "def test_" in each)
    (tmp_path / "relay.config.py").write_text(handlers)
    (tmp_path / "test_handlers.py").write_text(test)

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            # Without its own folder, pytest would first delete those of earlier runs.
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                f"--basetemp={tmp_path / 'own'}",
            ],
            cwd=tmp_path,
            text=True,
            capture_output=True,
        )

    done = run()
    assert done.returncode == 0, done.stdout
    (tmp_path / "relay.config.py").write_text(handlers.replace("Deployed", "Shipped"))
    assert "assert ['Shipped v1.2.3 to staging'] == ['Deployed v1.2.3 to staging']" in run().stdout


def test_an_outcome_has_all_that_handlers_did(relay_session: Session) -> None:
    async def deploy(target: str, message: str, ctx: Context) -> dict[str, str]:
        ctx.inject("before")
        await ctx.relay.send("Bob", f"{target}: {message}", thread="deploys")
        ctx.send("Carol", "later")
        print("printed")
        return {"inject": "after"}

    session = relay_session(RelayConfig(patterns={"deploy": deploy}), name="Ann", members=["Bob", "Carol"])
    outcome = session.say("It works.\n@deploy:staging <<<\nv1\nv2\n>>>")
    assert outcome.injected == ["before", "after"]
    assert [(each.to, each.body, each.thread) for each in outcome.sent] == [
        ("Bob", "staging: v1\nv2", "deploys"),
        ("Carol", "later", None),
    ]
    assert outcome.printed == ["printed\n"]
    assert [each.kind for each in outcome.problems] == ["printed"]
    assert outcome.errors == () and outcome.decision.action == "inject_context"
    with pytest.raises(ValueError, match="there is no directive"):
        session.say("no directive at all")


def test_decisions_faults_and_errors_are_seen(relay_session: Session) -> None:
    def guard(tool_input: dict[str, str]) -> HookResult | None:
        if "rm" in tool_input["command"]:
            return HookResult("deny", reason="Nobody deletes.")
        return None

    def fails(prompt: str) -> None:
        raise KeyError(prompt)

    session = relay_session(RelayConfig(hooks={"tool_pre": guard, "prompt_submit": fails}))
    denied = session.fire("tool_pre", tool_name="Bash", tool_input={"command": "rm -r ."})
    assert (denied.decision.action, denied.decision.reason) == ("deny", "Nobody deletes.")
    allowed = session.fire("onToolPre", tool_name="Bash", tool_input={"command": "ls"})
    assert allowed.decision.action == "continue" and len(allowed.returned) == 1
    failed = session.fire("prompt_submit", prompt="Hello")
    assert failed.decision.action == "deny"
    assert [each.kind for each in failed.problems] == ["raised"]
    assert session.say("@relay:Nobody hello").errors[0].startswith("@relay:Nobody: nobody in the team")
    with pytest.raises(ConfigError, match="there is no event 'tool_after'"):
        session.fire("tool_after")


def test_a_session_has_memories_output_and_the_agents_environment(
    relay_session: Session, tmp_path: Path
) -> None:
    def recall(ctx: Context) -> str:
        ctx.memory.save(f"{ctx.task} in {ctx.env['LANG']}: {ctx.output[-1]}")
        return ctx.memory.list()[0].text

    session = relay_session(RelayConfig(hooks={"idle": recall}), env={"LANG": "C"}, task="tidy up")
    session.history.output.append("all is well")
    assert session.fire("idle", seconds=30.0).injected == ["tidy up in C: all is well"]
    (tmp_path / "relay.config.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError, match=r"relay\.config\.py:1: loading failed with ZeroDivisionError"):
        relay_session(tmp_path / "relay.config.py")
