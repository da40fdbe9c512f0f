import pytest

from hooks.rig import Rig, directive, texts
from relay.errors import ConfigError
from relay.hooks.events import SessionStart
from relay.hooks.registry import Pattern, Registry, registering


def speaker(text, log=None, **result):
    """Return a handler that injects `text`."""

    def handler(target, message, ctx):
        return {"inject": text, **result}

    return handler


def order(registry: Registry, said: str):
    return [
        handler.function(None, None, None)["inject"] for handler in registry.for_directive(directive(said))
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
        registry.add_pattern(pattern, speaker(pattern))
    assert order(registry, "@deploy:prod-eu-1") == [
        "deploy:prod-eu-1", "deploy:prod-eu-*", "deploy:prod-*", "deploy:*", "deploy",
    ]  # fmt: skip
    assert order(registry, "@deploy:staging") == ["deploy:*", "deploy"]


def test_patterns_compare_without_case():
    """R66"""
    registry = Registry()
    registry.add_pattern("Deploy:Prod-*", speaker("it"))
    assert order(registry, "@deploy:PROD-1") == ["it"]
    assert registry.knows("DEPLOY")
    assert not registry.knows("other")


def built_in(pattern: str) -> Registry:
    registry = Registry(builtin=True)
    registry.add_pattern(pattern, speaker("built-in"))
    return registry


def test_built_in_handlers_come_before_the_users():
    """R67: even before a more specific one, and before one registered earlier."""
    registry = Registry()
    registry.add_pattern("memory:save", speaker("user, specific"), priority=9)
    registry.include(built_in("memory"))
    registry.add_pattern("memory", speaker("user"))
    assert order(registry, "@memory:save") == ["built-in", "user, specific", "user"]


def test_an_overriding_handler_takes_the_place_of_the_built_in_where_it_matches():
    """R67"""
    registry = Registry()
    registry.include(built_in("memory"))
    registry.add_pattern("memory:save", speaker("mine"), override=True)
    assert order(registry, "@memory:save") == ["mine"]
    assert order(registry, "@memory:list") == ["built-in"]


def test_handlers_of_one_pattern_run_in_the_order_of_registration_unless_a_priority_is_given():
    """R68"""
    registry = Registry()
    for number in "123":
        registry.add_pattern("deploy", speaker(number))
    registry.add_pattern("deploy", speaker("first"), priority=1)
    registry.add_pattern("deploy", speaker("last"), priority=-1)
    assert order(registry, "@deploy:x") == ["first", "1", "2", "3", "last"]


def test_the_runner_keeps_to_the_order(rig: Rig):
    """R66, R68"""
    for number in "12":
        rig.registry.add_pattern("deploy", speaker(f"any {number}"))
    rig.registry.add_pattern("deploy:eu", speaker("eu"))
    outcome, _ = rig.say("@deploy:eu now")
    assert texts(outcome.results) == ["eu", "any 1", "any 2"]


def test_stop_ends_the_chain(rig: Rig):
    """R69"""
    rig.registry.add_pattern("deploy", speaker("1"))
    rig.registry.add_pattern("deploy", speaker("2", stop=True))
    rig.registry.add_pattern("deploy", speaker("3"))
    outcome, _ = rig.say("@deploy:eu now")
    assert texts(outcome.results) == ["1", "2"]


def test_stop_ends_the_chain_of_an_event(rig: Rig):
    """R69"""
    rig.registry.add_event("session_start", lambda: {"inject": "late", "stop": True})
    rig.registry.add_event("session_start", lambda: "never")
    rig.registry.add_event("session_start", lambda: "early", priority=1)
    results, _ = rig.fire(SessionStart())
    assert texts(results) == ["early", "late"]


def test_one_handler_for_both_sides_of_a_tool_call():
    registry = Registry()
    registry.add_event("onToolCall", lambda event, ctx: None)
    labels = [handler.label for handler in registry.handlers()]
    assert labels == ["on tool_pre", "on tool_post"]


@pytest.mark.parametrize("text", ["", "@deploy", "deploy:", "de ploy", "1deploy", ":x", "deploy:a b", 7])
def test_a_malformed_pattern_is_answered_with_an_example(text):
    with pytest.raises(ConfigError, match="'deploy:prod-\\*'"):
        Pattern.parse(text)


def test_a_registry_includes_another_after_its_own():
    registry, other = Registry(), Registry()
    registry.add_pattern("deploy", speaker("own"))
    other.add_pattern("deploy", speaker("other"))
    other.add_event("idle", lambda: None)
    registry.include(other)
    assert order(registry, "@deploy:x") == ["own", "other"]
    assert [handler.label for handler in registry.handlers()] == ["@deploy", "@deploy", "on idle"]


def test_registering_does_not_outlast_its_block():
    from relay import pattern

    with registering(Registry()):
        pass
    with pytest.raises(ConfigError, match=r"@pattern works while relay loads a relay.config.py"):
        pattern("deploy")(lambda: None)
