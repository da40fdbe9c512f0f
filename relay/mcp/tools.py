"""The tools: what a client reads about each, and what it may give them.

No word of an agent, a file or the user gets into these texts.
"""

from __future__ import annotations

import json

from relay.dataclass import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    Access = Literal["user", "agent", "spawner"]
    """Whose server it is: the user's, an agent's, or that of an agent that may start others."""

LONGEST_WAIT = 50
"""Seconds: many clients give up on a call after a minute."""

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
}


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. parameters: their JSON schemas, by name; required: those that must be given.

    reads: it changes nothing. access: whose servers offer it.
    """

    name: str
    description: str
    parameters: dict[str, dict[str, Any]]
    required: tuple[str, ...] = ()
    reads: bool = False
    access: tuple[Access, ...] = ("user", "agent", "spawner")

    def public(self) -> dict[str, Any]:
        """Return its entry in the answer to `tools/list`."""
        schema: dict[str, Any] = {
            "type": "object",
            "properties": self.parameters,
            "additionalProperties": False,
        }
        if self.required:
            schema["required"] = list(self.required)
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema,
            "annotations": {"readOnlyHint": self.reads, "openWorldHint": False},
        }

    def mistake(self, given: dict[str, Any]) -> str:
        """Return what is wrong with the arguments `given`; "" if nothing is."""
        if missing := [name for name in self.required if name not in given]:
            return f"{self.name} needs {' and '.join(missing)}."
        for name, value in given.items():
            schema = self.parameters.get(name)
            if schema is None:
                known = ", ".join(self.parameters) or "none"
                return f"{self.name} has no argument {name!r:.40}. Its arguments: {known}."
            if not _fits(value, schema):
                fits = {key: schema[key] for key in schema if key != "description"}
                return f"{name} does not fit {json.dumps(fits)}."
        return ""


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    kind = schema["type"]
    if kind == "array":
        return isinstance(value, list) and all(_fits(each, schema["items"]) for each in value)
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    if "maximum" in schema:
        return bool(schema["minimum"] <= value <= schema["maximum"])
    return "enum" not in schema or value in schema["enum"]


_AGENTS: tuple[Access, ...] = ("agent", "spawner")

TOOLS = (
    Tool("whoami", "Say who you are to relay: your name, team, and folder.", {}, reads=True),
    Tool(
        "list_agents",
        "List the agents that you can write to, with their states. An agent that is offline gets its "
        "messages when it is back.",
        {},
        reads=True,
    ),
    Tool(
        "send_message",
        "Send a message to an agent, to a channel such as #ops, to * for every running agent, or to you for "
        "the user. It is delivered once, as soon as that is safe; you are told if it does not arrive.",
        {
            "to": _text("an agent's name, #channel, * or you"),
            "text": _text("the message"),
            "priority": _text("low waits until the receiver is idle", enum=["urgent", "normal", "low"]),
            "thread": _text("a word for what the message belongs to"),
        },
        ("to", "text"),
    ),
    Tool(
        "wait_for_message",
        "Wait for messages to you, and return them at once when they are there. A message that is returned "
        "is not delivered again; without this tool, messages come by themselves.",
        {
            "seconds": {
                "type": "number",
                "description": f"the longest time to wait, up to {LONGEST_WAIT} (default: 30)",
                "minimum": 0,
                "maximum": LONGEST_WAIT,
            }
        },
    ),
    Tool(
        "inbox",
        "List what waits for you. wait_for_message gives you the messages themselves.",
        {},
        reads=True,
        access=_AGENTS,
    ),
    Tool(
        "inbox",
        "List what waits for the user: questions of agents, messages, failures, and mistakes in the "
        "configuration, each with the command that deals with it.",
        {},
        reads=True,
        access=("user",),
    ),
    Tool(
        "message_status",
        "Say whether a message has been delivered, or why it waits.",
        {"id": _text("the message's id, or how it begins")},
        ("id",),
        reads=True,
    ),
    Tool(
        "remember",
        "Save a text in the memory that outlives this session.",
        {
            "text": _text("what to remember"),
            "shared": {"type": "boolean", "description": "for the whole team (default: only for you)"},
        },
        ("text",),
    ),
    Tool(
        "recall",
        "Find memories by their words, the best matches first, or list the newest.",
        {"query": _text("words to look for; without it, the newest")},
        reads=True,
    ),
    Tool(
        "forget",
        "Delete a memory.",
        {"id": _text("its id, or at least the first three characters")},
        ("id",),
    ),
    Tool(
        "ask_user",
        "Ask the user a question without blocking their terminal. The answer comes as a message from the "
        "user: call wait_for_message, or go on with other work.",
        {
            "question": _text("the question"),
            "choices": {
                "type": "array",
                "items": {"type": "string"},
                "description": "answers to choose from",
            },
        },
        ("question",),
        access=_AGENTS,
    ),
    Tool(
        "look",
        "Show the current screen of an agent, as text.",
        {"name": _text("the agent's name")},
        ("name",),
        reads=True,
    ),
    Tool(
        "spawn",
        "Start another agent, as a copy of one in the fleet file. You are told when it ends.",
        {
            "name": _text("the new agent's name"),
            "agent": _text("the agent in the fleet file to copy, or the program that such an agent runs"),
            "task": _text("its first prompt"),
        },
        ("name", "agent", "task"),
        access=("spawner",),
    ),
    Tool(
        "release",
        "End an agent that you have started.",
        {"name": _text("its name")},
        ("name",),
        access=("spawner",),
    ),
)


def offered(access: Access) -> dict[str, Tool]:
    return {tool.name: tool for tool in TOOLS if access in tool.access}
