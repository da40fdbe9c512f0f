"""The origin of an injected text, as shown to the agent, and its size limit."""

from __future__ import annotations

import itertools
import re
import time

import pytest

from relay.errors import MessageRefused
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.layout import MAX_HOOK_BYTES, Style, check, clean, context, enclose, lay_out


def _hook(text: str = "line 42 is too long", source: str = "ruff", event: str = "PostToolUse") -> Injection:
    at = time.mktime((2026, 7, 1, 14, 3, 7, 0, 0, -1))
    return Injection("id", text, source, "hook", event=event, time=at, role="system")


ORIGINS = [
    (_hook(), "hook ruff on PostToolUse, 14:03:07"),
    (_hook(event=""), "hook ruff, 14:03:07"),
    (Injection("id", "x", "ruff", "hook"), "hook ruff"),
    (Injection("id", "x", "", "hook", event="Stop"), "hook on Stop"),
    (Injection("id", "x", "relay", "notice", time=1.0), "notice relay"),
    (Injection("id", "x", "Alice", time=1.0), "from Alice"),
]


def test_a_text_is_marked_with_its_origin(subtests: pytest.Subtests) -> None:
    """R74: the mark has the source, event and time of a hook's text."""
    for (injection, label), style in itertools.product(ORIGINS, Style):
        with subtests.test(f"{style}: {label}"):
            (text,) = lay_out(injection, style, "k3f9")
            assert text == f"[relay k3f9 {label}] {injection.text} [/relay k3f9]"


def test_each_text_of_several_hooks_has_its_origin_as_heading() -> None:
    """R74, R78"""
    texts = [(each, clean(each)) for each in (_hook(), _hook("7 failed", "pytest", "Stop"))]
    assert re.findall(r"^\[relay k3f9\] (.*)$", enclose(texts, "k3f9"), re.MULTILINE) == [
        "From ruff on PostToolUse, 14:03:07:",
        "From pytest on Stop, 14:03:07:",
    ]


def test_the_requested_and_the_actual_role_may_differ() -> None:
    """R72: typed text is user input, whatever role was requested."""
    outcome = Outcome(Result.INJECTED, route="typed", role="user")
    assert (_hook().role, outcome.role) == ("system", "user")


def test_the_limit_is_in_bytes_of_utf8_and_nothing_is_truncated(subtests: pytest.Subtests) -> None:
    """R71"""
    for character, kind in itertools.product(["x", "é", "漢", "🙂"], ["hook", "notice", "closing"]):
        with subtests.test(f"{kind}: {character}"):
            fits = character * (MAX_HOOK_BYTES // len(character.encode()))
            fits += "x" * (MAX_HOOK_BYTES - len(fits.encode()))
            assert len(fits.encode()) == 10_240
            assert check(Injection("id", fits, "lint", kind)) == fits
            for more in ("x", character):
                with pytest.raises(
                    MessageRefused,
                    match=f"has {10_240 + len(more.encode()):,} bytes, and relay can type at most 10,240",
                ):
                    check(Injection("id", fits + more, "lint", kind))


def test_a_context_is_enclosed_in_its_own_tags() -> None:
    """R38"""
    assert context("one\ntwo") == "<user-prompt-submit-hook>\none\ntwo\n</user-prompt-submit-hook>"
