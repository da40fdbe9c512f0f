"""The public Python API: `import relay`, the decorators, `Relay`."""

import subprocess
import sys

import pytest

import relay
from hooks.rig import Rig, texts
from relay.errors import ConfigError, UsageError
from relay.memory.config import MemoryConfig
from relay.session import launch
from relay.session.options import Options


def test_importing_relay_imports_no_other_module():
    code = (
        "import sys; before = set(sys.modules); import relay;"
        "print(*sorted(set(sys.modules) - before - {'relay'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == []


def test_every_public_name_exists():
    for name in relay.__all__:
        assert getattr(relay, name) is not None
        assert name in dir(relay)
    with pytest.raises(AttributeError, match="module 'relay' has no attribute 'nothing'"):
        relay.nothing  # noqa: B018


def test_the_decorators_return_the_function_and_work_only_in_a_config_file():
    def handler(): ...

    for decorator in (relay.pattern("deploy"), relay.on("idle")):
        with pytest.raises(ConfigError, match=r"make a relay.Relay\(name=...\) and use its"):
            decorator(handler)
    program = relay.Relay()
    assert program.pattern("deploy", handler) is handler
    assert program.on("idle")(handler) is handler


def test_a_relay_registers_patterns_and_events(rig: Rig):
    """R59"""
    program = relay.Relay(name="MyAgent")

    @program.pattern("deploy")
    async def deploy(target, message, ctx):
        return {"inject": f"Deployed to {target}"}

    program.pattern("status", lambda: "fine", body=False)
    program.on("sessionStart", lambda ctx: ctx.inject("memories"))
    rig.registry.include(program.registry)
    assert texts(rig.say("@deploy:x y")[0].results) == ["Deployed to x"]
    assert texts(rig.say("@status:x")[0].results) == ["fine"]


@pytest.mark.parametrize(
    ("command", "argv"),
    [("claude", ["claude"]), ("sh -c 'exit 3'", ["sh", "-c", "exit 3"]), (["a b", "c"], ["a b", "c"])],
)
def test_wrap_passes_command_options_and_handlers_to_the_session(monkeypatch, command, argv):
    """R59"""
    seen: list[Options] = []

    def wrap(options: Options) -> int:
        seen.append(options)
        return 7

    monkeypatch.setattr(launch, "wrap", wrap)
    program = relay.Relay(name="MyAgent", team="crew", task="tidy", memory={"promptOnEnd": True})
    assert program.wrap(command) == 7
    (options,) = seen
    assert options.command == argv
    assert (options.name, options.team, options.task, options.broker) == ("MyAgent", "crew", "tidy", "")
    assert options.memory == MemoryConfig(prompt_on_end=True)
    assert options.registry is program.registry


def test_wrap_without_a_command_is_a_usage_error():
    with pytest.raises(UsageError, match="wrap needs a command"):
        relay.Relay().wrap("")
