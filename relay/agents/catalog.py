"""The catalog of profiles, relay's own, updated ones and the user's, and the profile of a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from relay.agents import updates
from relay.agents.launchers import without_launchers
from relay.agents.pattern_file import PatternFile
from relay.agents.profile import (
    ErrorRule,
    InputStyle,
    Native,
    Profile,
    Resume,
    RowStyle,
    StateRule,
    Submit,
)
from relay.errors import ConfigError, UsageError
from relay.home import Home
from relay.names import did_you_mean

GENERIC = "generic"
"""The profile of a program that no other profile recognises."""

_TABLES: dict[str, type] = {
    "echo": RowStyle,
    "code": RowStyle,
    "submit": Submit,
    "native": Native,
    "resume": Resume,
}


def for_command(argv: Sequence[str], home: Home) -> Profile:
    """Return the profile of the program that `argv` starts, the generic one if no other recognises it.

    Raise ConfigError for an invalid pattern file.
    """
    words, known = without_launchers(argv), profiles(home)
    return next((profile for profile in known if profile.recognises(words)), known[-1])


def load(name: str, home: Home) -> Profile:
    """Return the profile called `name`. Raise ConfigError if there is none, or its file is invalid."""
    known = profiles(home)
    for profile in known:
        if profile.name == name:
            return profile
    names = ", ".join(profile.name for profile in known)
    raise ConfigError(f"unknown agent profile {name!r}. The profiles are {names}; `relay agents` lists them.")


def expect(name: str, home: Home) -> None:
    """Raise UsageError if no pattern file makes a profile called `name`, whether or not the file is valid."""
    known = [*updates.shipped(), *updates.in_force(home), *updates.files(home.config / "patterns")]
    if name not in known:
        meant = did_you_mean(name, known)
        raise UsageError(f"unknown agent profile {name!r}. {meant}`relay agents` lists the profiles.")


def fallback() -> Profile:
    """Return the generic profile as shipped, for when one of the user's files is invalid."""
    return _profile([updates.shipped()[GENERIC]], None)


def profiles(home: Home) -> list[Profile]:
    """Return every profile: the user's own, the shipped ones, the generic one last. Raise ConfigError."""
    return made(updates.shipped() | updates.in_force(home), updates.files(home.config / "patterns"))


def made(base: Mapping[str, Path], own: Mapping[str, Path]) -> list[Profile]:
    """Return the profiles in these pattern files by name; keys of `own` override. Raise ConfigError."""
    names = dict.fromkeys([*own, *base])
    paths = {name: [files[name] for files in (base, own) if name in files] for name in names}
    generic = _profile(paths.pop(GENERIC), None)
    return [*(_profile(files, generic) for files in paths.values()), generic]


def _profile(paths: Sequence[Path], generic: Profile | None) -> Profile:
    """Return the profile in its files; keys and same-named state rules of a later file override."""
    merged: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {name: {} for name in _TABLES}
    rules: dict[str, StateRule] = {}
    inputs: dict[str, Any] = {}
    errors: tuple[ErrorRule, ...] = ()
    for path in paths:
        fields = PatternFile.read(path).fields()
        rules |= {rule.name: rule for rule in fields.pop("states", ())}
        inputs |= fields.pop("input", {})
        errors = (*fields.pop("errors", ()), *errors)
        for name, table in tables.items():
            table |= fields.pop(name, {})
        merged |= fields
    merged["errors"] = errors
    merged["states"] = tuple(sorted(rules.values(), key=lambda rule: -rule.priority))
    merged |= {name: kind(**tables[name]) for name, kind in _TABLES.items()}
    base = generic or Profile(GENERIC, paths[-1])
    if inputs:
        merged["input"] = InputStyle(**inputs, assumed=generic is None)
    elif not any(rule.state == "ready" for rule in rules.values()):
        merged["input"] = None if base.input is None else replace(base.input, assumed=True)
    for key in ("reader", "decoration", "prefix", "inject", "fullscreen", "block_end", "settle"):
        merged.setdefault(key, getattr(base, key))
    for key in ("prompts", "decisions", "questions", "dialogs"):
        merged[key] = (*merged.get(key, ()), *getattr(base, key))
    return Profile(**{**merged, "name": paths[-1].stem, "path": paths[-1]})
