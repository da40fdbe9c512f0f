"""The types of values that only agents have: commands, files and folders, environments, channels."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relay import names
from relay.errors import ConfigError
from relay.storage.files import open_regular
from relay.text import one_line
from relay.values import TEXT, Invalid, Spot, ValueKind, are_words, plain, shown, whole

LARGEST = 1 << 20
"""Maximum size in bytes of a file to read: a fleet file, a task, an environment."""

LONGEST_TASK = 32 << 10
"""Maximum size of a task in bytes: as JSON, it becomes one program argument, at most 128 KB on Linux."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _command(value: Any, spot: Spot) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise Invalid(
                f"{spot.name}: {shown(value)} cannot be split into words ({str(error).lower()}). "
                "Close the quotation, or write a list."
            ) from None
    else:
        words = plain(list, COMMAND.form, are_words).read(value, spot)
    if not words or not words[0]:
        raise Invalid(f'{spot.name} names no program; write one, like "claude".')
    if any("\0" in word for word in words):
        raise Invalid(f"{spot.name} has a NUL character. Remove it.")
    return tuple(words)


COMMAND = ValueKind("a string, split into words as sh does, or a list of strings", _command)


def _path(value: Any, spot: Spot, what: str, right: Callable[[Path], bool]) -> Path:
    """Return the path of an existing `what`. Raise Invalid if it is missing, or not `right`."""
    path = spot.beside(TEXT.read(value, spot))
    try:
        if right(path):
            return path
        wrong = f"is not a {what}" if path.exists() else "does not exist"
    except OSError as error:  # too long, or in a folder that the user may not enter
        wrong = f"cannot be used: {error.strerror}"
    raise Invalid(f"{spot.name}: {one_line(str(path), 200)} {wrong}. Name an existing {what}.")


FOLDER = ValueKind("a folder", lambda value, spot: _path(value, spot, "folder", Path.is_dir))
FILE = ValueKind("a file", lambda value, spot: _path(value, spot, "file", Path.is_file))


def _task(text: str, spot: Spot) -> str:
    if len(text.encode()) > LONGEST_TASK:
        most = f"{LONGEST_TASK >> 10} KB"
        raise Invalid(f"{spot.name} must be at most {most}. Let the agent read a file instead.")
    return text.strip()


TASK = ValueKind("a string", lambda value, spot: _task(TEXT.read(value, spot), spot))
TASK_FILE = ValueKind("a text file", lambda value, spot: _task(_text(FILE.read(value, spot)), spot))


def _text(path: Path) -> str:
    """Return the content of a text file. Raise ConfigError, which names that file, if it cannot be read."""
    try:
        with open(open_regular(path), "rb") as stream:
            content = stream.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise ConfigError(f"has more than {LARGEST >> 20} MB. Shorten it.", path)
        return content.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}. Make it readable.", path) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 (byte {error.start + 1}). Save it as UTF-8.", path) from None


def _variable(name: str) -> str | None:
    """Return what is wrong with the name of an environment variable, or None."""
    if not _VARIABLE.fullmatch(name):
        return f"{name!r} is not a variable's name; use letters, digits and '_'."
    if name.startswith("RELAY_"):
        return f"{name} is set by relay itself. Remove it."
    return None


def _environment(value: Any, spot: Spot) -> dict[str, str]:
    if not isinstance(value, dict):
        raise Invalid(f"{spot.name} must be {ENVIRONMENT.form}, not {shown(value)}.")
    found = {}
    for name, text in value.items():
        here = spot.at(name)
        if wrong := _variable(name):
            here.wrong(f"{spot.name}: {wrong}")
        elif not isinstance(text, str) or "\0" in text:  # not shown: it may be secret
            here.wrong(f"{here.name} must be a string. Put it in quotes.")
        else:
            found[name] = text
    return found


ENVIRONMENT = ValueKind("a table of strings", _environment)


def _env_file(value: Any, spot: Spot) -> dict[str, str]:
    """Return the variables in a file of lines `NAME=VALUE`; skip blank lines and # comments."""
    path = FILE.read(value, spot)
    found = {}
    for number, line in enumerate(_text(path).split("\n"), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, equals, text = line.removeprefix("export ").partition("=")
        name, text = name.strip(), text.strip()
        wrong = _variable(name) if equals else "the line is not NAME=VALUE."
        if wrong or "\0" in text:
            spot.mistakes.append(ConfigError(wrong or "there is a NUL character.", path, number))
        quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
        found[name] = text[1:-1] if quoted else text
    return found


ENV_FILE = ValueKind("a file of lines `NAME=VALUE`", _env_file)


CHANNEL = ValueKind('a channel like "#ops"', lambda value, spot: names.channel(TEXT.read(value, spot)))


def _exit_codes(value: Any, spot: Spot) -> tuple[int, ...]:
    codes = plain(list, EXIT_CODES.form, lambda items: all(type(each) is int for each in items))
    found = codes.read(value, spot)
    return tuple(whole(most=255).read(each, spot.at(number)) for number, each in enumerate(found))


EXIT_CODES = ValueKind("a list of numbers from 0 to 255", _exit_codes)
