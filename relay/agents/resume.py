"""The command line with which an agent resumes a conversation.

    claude --model opus "fix the tests"   ──→   claude --resume ID --model opus

The meaning of its options is data: the table `[resume]` of the agent's pattern file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from relay.agents.conversation import Conversation, is_id
from relay.agents.launchers import without_launchers
from relay.agents.profile import AgentOption, Profile, Resume, Takes
from relay.dataclass import dataclass

_ID = "{id}"

_END = "--"
"""No word after it is an option."""


def resume_command(profile: Profile, command: Sequence[str], conversation: Conversation) -> list[str] | None:
    """Return the command line that resumes `conversation`, made from the one that started the agent.

    It repeats neither the first prompt nor the words that named a conversation before.  Return None if the
    agent cannot resume conversations, if the command has none (as in print mode), or if one of its words may
    be either a prompt or the value of an unknown option.
    """
    resume, start = profile.resume, len(command) - len(without_launchers(command))
    if not resume.words or start == len(command):
        return None
    parts = _parts(command[start + 1 :], resume)
    known = profile.recognises(command[start:])
    refused, dropped = _names(resume.refuse), _names(resume.drop)
    if parts is None or any(part.name in refused for part in parts):
        return None
    free = any(not part.name for part in parts)
    if free and (not known or resume.positional == "once"):  # a script's words may be its own
        return None
    if resume.positional == "prompt":
        parts = [part for part in parts if part.name]
    kept = [word for part in parts if part.name not in dropped for word in part.words]
    # A script may need other words first.
    place = 0 if known else kept.index(_END) if _END in kept else len(kept)
    words = [word.replace(_ID, conversation.id) for word in resume.words]
    return [*command[: start + 1], *kept[:place], *words, *kept[place:]]


def named_in(profile: Profile, command: Sequence[str]) -> str:
    """Return the id of the conversation that `resume_command` put into `command`; "" if there is none."""
    wanted = "\0".join(map(re.escape, profile.resume.words)).replace(re.escape(_ID), "([^\0]*)")
    arguments = "\0".join(["", *without_launchers(command)[1:], ""])
    found = re.search(f"\0{wanted}\0", arguments) if wanted else None
    return found[1] if found and is_id(found[1]) else ""


@dataclass(frozen=True, slots=True)
class _Part:
    """Words of a command line that belong together. name: of the option or command; "" for a free word."""

    words: tuple[str, ...]
    name: str = ""


def _parts(arguments: Sequence[str], resume: Resume) -> list[_Part] | None:
    """Return the parts of an agent's arguments; None if a word may or may not belong to an option."""
    options = {each.name: each.takes for each in (*resume.keep, *resume.drop, *resume.refuse)}
    parts: list[_Part] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        short, long = word[:2], word.partition("=")[0]
        if word == _END:
            parts += [_Part((each,)) for each in (word, *rest)]
            break
        if word == "-" or not word.startswith("-"):
            is_command = word in options and all(part.name for part in parts)
            parts.append(_Part((word,), word if is_command else ""))
        elif word in options:
            parts.append(_Part((word, *_values(options[word], rest)), word))
        elif word.startswith("--") and long != word:
            parts.append(_Part((word,), long))
        elif not word.startswith("--") and short in options:
            if options[short] == "none":  # -cp is -c -p
                rest.insert(0, f"-{word[2:]}")
                word = short
            parts.append(_Part((word,), short))
        elif rest and not rest[0].startswith("-"):
            return None
        else:
            parts.append(_Part((word,), word))
    return parts


def _values(takes: Takes, rest: list[str]) -> list[str]:
    """Remove the values of an option from the words after it, and return them."""
    values: list[str] = []
    most = {"none": 0, "one": 1, "optional": 1, "several": len(rest)}[takes]
    while rest and len(values) < most and (takes == "one" or not rest[0].startswith("-")):
        values.append(rest.pop(0))
    return values


def _names(options: Sequence[AgentOption]) -> frozenset[str]:
    return frozenset(option.name for option in options)
