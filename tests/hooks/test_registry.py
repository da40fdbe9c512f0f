"""The registry puts the handlers of a directive or an event in order."""

import pytest

from hooks.rig import Rig, directive, texts
from relay.errors import ConfigError
from relay.hooks.events import SessionStart
from relay.hooks.registry import Pattern, Registry, registering


def injector(text, log=None, **result):
    """Return a handler that injects `text`."""

    def handler(target, message, ctx):
        return {"inject": text, **result}

    return handler


def injected_by(registry: Registry, text: str):
    return [
        handler.function(None, None, None)["inject"] for handler in registry.for_directive(directive(text))
    ]


def test_the_most_specific_pattern_comes_first():
    """R66"""
    registry = Registry()
    for pattern in (
        "deploy",
        "deploy:*",
        "deploy:prod-*",
        "deploy:prod-eu-*",
        "deploy:prod-eu-1",
        "deploy:x",
    ):
        registry.add_pattern(pattern, injector(pattern))
    assert injected_by(registry, "@deploy:prod-eu-1") == [
        "deploy:prod-eu-1", "deploy:prod-eu-*", "deploy:prod-*", "deploy:*", "deploy",
    ]  # fmt: skip
    assert injected_by(registry, "@deploy:staging") == ["deploy:*", "deploy"]


def test_patterns_compare_without_case():
    """R66"""
    registry = Registry()
    registry.add_pattern("Deploy:Prod-*", injector("it"))
    assert injected_by(registry, "@deploy:PROD-1") == ["it"]
    assert registry.knows("DEPLOY")
    assert not registry.knows("other")


def built_in(pattern: str) -> Registry:
    registry = Registry(builtin=True)
    registry.add_pattern(pattern, injector("built-in"))
    return registry


def test_built_in_handlers_come_before_the_users():
    """R67: even before a more specific or an earlier one."""
    registry = Registry()
    registry.add_pattern("memory:save", injector("user, specific"), priority=9)
    registry.include(built_in("memory"))
    registry.add_pattern("memory", injector("user"))
    assert injected_by(registry, "@memory:save") == ["built-in", "user, specific", "user"]


def test_an_overriding_handler_replaces_the_built_in_one_where_it_matches():
    """R67"""
    registry = Registry()
    registry.include(built_in("memory"))
    registry.add_pattern("memory:save", injector("mine"), override=True)
    assert injected_by(registry, "@memory:save") == ["mine"]
    assert injected_by(registry, "@memory:list") == ["built-in"]


def test_handlers_of_a_pattern_run_by_priority_and_then_by_registration():
    """R68"""
    registry = Registry()
    for number in "123":
        registry.add_pattern("deploy", injector(number))
    registry.add_pattern("deploy", injector("first"), priority=1)
    registry.add_pattern("deploy", injector("last"), priority=-1)
    assert injected_by(registry, "@deploy:x") == ["first", "1", "2", "3", "last"]


def test_the_runner_follows_the_order(rig: Rig):
    """R66, R68"""
    for number in "12":
        rig.registry.add_pattern("deploy", injector(f"any {number}"))
    rig.registry.add_pattern("deploy:eu", injector("eu"))
    outcome, _ = rig.say("@deploy:eu now")
    assert texts(outcome.results) == ["eu", "any 1", "any 2"]


def test_stop_ends_the_chain_of_a_directive(rig: Rig):
    """R69"""
    rig.registry.add_pattern("deploy", injector("1"))
    rig.registry.add_pattern("deploy", injector("2", stop=True))
    rig.registry.add_pattern("deploy", injector("3"))
    outcome, _ = rig.say("@deploy:eu now")
    assert texts(outcome.results) == ["1", "2"]


def test_stop_ends_the_chain_of_an_event(rig: Rig):
    """R69"""
    rig.registry.add_event("session_start", lambda: {"inject": "late", "stop": True})
    rig.registry.add_event("session_start", lambda: "never")
    rig.registry.add_event("session_start", lambda: "early", priority=1)
    results, _ = rig.fire(SessionStart())
    assert texts(results) == ["early", "late"]


def test_one_handler_may_take_both_events_of_a_tool_call():
    registry = Registry()
    registry.add_event("onToolCall", lambda event, ctx: None)
    labels = [handler.label for handler in registry.handlers()]
    assert labels == ["on tool_pre", "on tool_post"]


@pytest.mark.parametrize("text", ["", "@deploy", "deploy:", "de ploy", "1deploy", ":x", "deploy:a b", 7])
def test_an_invalid_pattern_is_refused_with_an_example(text):
    with pytest.raises(ConfigError, match="'deploy:prod-\\*'"):
        Pattern.parse(text)


def test_included_handlers_come_after_a_registrys_own():
    registry, other = Registry(), Registry()
    registry.add_pattern("deploy", injector("own"))
    other.add_pattern("deploy", injector("other"))
    other.add_event("idle", lambda: None)
    registry.include(other)
    assert injected_by(registry, "@deploy:x") == ["own", "other"]
    assert [handler.label for handler in registry.handlers()] == ["@deploy", "@deploy", "on idle"]


def test_registering_ends_with_its_block():
    from relay import pattern

    with registering(Registry()):
        pass
    with pytest.raises(ConfigError, match=r"@pattern works while relay loads a relay.config.py"):
        pattern("deploy")(lambda: None)
