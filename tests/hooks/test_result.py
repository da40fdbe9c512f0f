"""The values that a handler may return, and how several results combine."""

from pathlib import Path

import pytest

from relay.hooks.result import Decision, HookResult, decide, injected, result_of

INJECT = HookResult("inject_context", "text")


SHORT_FORMS = [
        (None, HookResult()),
        ("", HookResult()),
        ("text", INJECT),
        ({"inject": "text"}, INJECT),
        ({"inject": None}, HookResult()),
        ({}, HookResult()),
        ({"stop": True}, HookResult(stop=True)),
        ({"inject": "text", "stop": True}, HookResult("inject_context", "text", stop=True)),
        ({"user_message": "done", "user_message_level": "error"},
         HookResult(user_message="done", user_message_level="error")),
        ({"action": "inject_context", "context_injection": "text"}, INJECT),
        (HookResult(stop=True), HookResult(stop=True)),
        ({"deny": "not here"}, HookResult("deny", reason="not here")),
        ({"deny": ""}, HookResult()),
        ({"continue": True}, HookResult(force_continue=True)),
]  # fmt: skip


def test_a_short_form_means_a_hook_result(subtests: pytest.Subtests):
    """R50"""
    for returned, expected in SHORT_FORMS:
        with subtests.test(repr(returned)):
            assert result_of(returned) == expected


INVALID = [
    (3, r"returned 3 \(int\)\. Return None, a string"),
    (True, r"returned True \(bool\)"),
    (["text"], r"returned \['text'\] \(list\)"),
    (
        {"injekt": "text"},
        r"a dict with the key 'injekt' \(str\)\. The keys are halt, deny, ask, inject, modify, continue",
    ),
    ({"inject": 7}, r"returned 'inject': 7 \(int\); the value is the text"),
    ({"stop": "yes"}, r"stop is 'yes' \(str\); use True or False"),
    (
        {"action": "explode"},
        r"action is 'explode' \(str\); use one of 'continue', 'allow', 'modify', 'inject_context', 'ask'",
    ),
    ({"action": "inject_context"}, "needs its text in context_injection"),
    ({"context_injection": "text"}, "context_injection needs action='inject_context'"),
    ({1: 2}, r"the key 1 \(int\)"),
    ({"action": "deny"}, "needs a reason"),
    ({"deny": 3}, r"returned 'deny': 3 \(int\); the value is the reason"),
    ({"deny": "no", "inject": "text"}, "'inject' together with the action 'deny'"),
    ({"reason": "why"}, "reason needs action='deny'"),
    ({"continue": "yes"}, r"force_continue is 'yes' \(str\); use True or False"),
]


def test_an_invalid_result_is_refused_with_what_is_allowed(subtests: pytest.Subtests):
    for returned, message in INVALID:
        with subtests.test(repr(returned)), pytest.raises(ValueError, match=message):
            result_of(returned)


def test_an_unknown_role_is_refused():
    """R70"""
    result = HookResult("inject_context", "text", "user")
    assert result.context_injection_role == "user"
    with pytest.raises(ValueError, match="use one of 'system', 'user', 'assistant'"):
        HookResult("inject_context", "text", "robot")


def test_a_changed_input_must_be_valid_json():
    with pytest.raises(ValueError, match="updated_input cannot be written as JSON"):
        HookResult("modify", updated_input={"file_path": Path("/tmp")})


def test_injected_texts_keep_their_order():
    """R6"""
    results = [INJECT, HookResult(), HookResult("deny", reason="first"), HookResult.inject("more")]
    assert injected(results) == ["text", "more"]


def test_the_strongest_of_several_results_wins():
    """R24: halt > deny > ask > inject > modify > allow > continue."""
    weakest_first = [
        HookResult(),
        HookResult("allow"),
        HookResult("modify", updated_input={"command": "ls"}),
        INJECT,
        HookResult("ask", reason="sure?"),
        HookResult("deny", reason="no"),
        HookResult("halt", reason="stop"),
    ]
    for place, strongest in enumerate(weakest_first):
        assert decide(reversed(weakest_first[: place + 1])).action == strongest.action
    assert decide([]) == Decision()


def test_several_reasons_are_in_firing_order_with_their_sources():
    """R25: a single reason is shown as it is."""
    one, two = (HookResult("deny", reason=f"{name}'s", source=name) for name in ("first", "second"))
    assert decide([one, HookResult("ask", reason="sure?"), INJECT]).reason == "first's"
    assert decide([one, two]).reason == "first: first's\nsecond: second's"
    assert decide([INJECT]).reason == ""


def test_a_call_is_allowed_only_if_no_result_objects():
    allow = HookResult("allow", reason="known")
    assert decide([allow, INJECT]).allowed
    assert not decide([allow, HookResult("ask", reason="sure?")]).allowed
    assert decide([allow, HookResult("modify", updated_input={"command": "ls"})]).updated_input == {
        "command": "ls"
    }
