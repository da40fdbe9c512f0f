"""The events for handlers, and the spellings of their names."""

import dataclasses

import pytest

from relay.errors import ConfigError
from relay.hooks.events import EVENTS, MessageReceived, Output, event_names


def test_an_event_is_named_after_its_class():
    assert list(EVENTS) == [
        "session_start", "output", "tool_pre", "tool_post", "prompt_submit", "prompting",
        "message_received", "message_sent", "idle", "agent_end", "compact", "session_end",
    ]  # fmt: skip
    assert all(EVENTS[name].name == name and EVENTS[name].__doc__ for name in EVENTS)


def test_an_event_is_frozen_and_has_slots():
    event = Output("hello")
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.output = "other"
    assert not hasattr(event, "__dict__")
    fields = ("sender", "body", "id", "channel", "thread", "reply_to", "priority")
    assert MessageReceived.field_names() == fields


@pytest.mark.parametrize(
    ("spelling", "names"),
    [
        ("session_start", ("session_start",)),
        ("sessionStart", ("session_start",)),
        ("onSessionStart", ("session_start",)),
        ("on_session_start", ("session_start",)),
        ("SessionStart", ("session_start",)),
        ("onOutput", ("output",)),
        ("output", ("output",)),
        ("onMessageReceived", ("message_received",)),
        ("onToolCall", ("tool_pre", "tool_post")),
        ("tool_call", ("tool_pre", "tool_post")),
        ("onIdle", ("idle",)),
    ],
)
def test_every_spelling_of_an_event_is_accepted(spelling, names):
    assert event_names(spelling) == names


def test_an_unknown_event_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"no event 'onSesionStart'. Did you mean 'session_start'\?"):
        event_names("onSesionStart")
