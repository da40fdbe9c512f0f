"""The catalog of profiles, relay's own, updated ones and the user's, and the profile of a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from relay.dataclass import replace
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
    """Return the profile of the program that `argv` starts, else the generic one. Raise ConfigError."""
    words, files = without_launchers(argv), _files(home)
    generic = files.pop(GENERIC)
    for paths in files.values():
        if _recognition(paths).recognises(words):
            return _profile(paths, _profile(generic, None))
    return _profile(generic, None)


def load(name: str, home: Home) -> Profile:
    """Return the profile called `name`. Raise ConfigError if there is none, or its file is invalid."""
    files = _files(home)
    if name not in files:
        raise ConfigError(
            f"unknown agent profile {name!r}. The profiles are {', '.join(files)}; `relay agents` lists them."
        )
    generic = _profile(files[GENERIC], None)
    return generic if name == GENERIC else _profile(files[name], generic)


def expect(name: str, home: Home) -> None:
    """Raise UsageError if no pattern file makes a profile called `name`, whether or not the file is valid."""
    known = _files(home)
    if name not in known:
        meant = did_you_mean(name, known)
        raise UsageError(f"unknown agent profile {name!r}. {meant}`relay agents` lists the profiles.")


def fallback() -> Profile:
    """Return the generic profile as shipped, for when one of the user's files is invalid."""
    return _profile([updates.shipped()[GENERIC]], None)


def profiles(home: Home) -> list[Profile]:
    """Return every profile: the user's own, the shipped ones, the generic one last. Raise ConfigError."""
    return _made(_files(home))


def made(base: Mapping[str, Path], own: Mapping[str, Path]) -> list[Profile]:
    """Return the profiles in these pattern files by name; keys of `own` override. Raise ConfigError."""
    return _made(_by_name(base, own))


def _made(files: dict[str, list[Path]]) -> list[Profile]:
    generic = _profile(files.pop(GENERIC), None)
    return [*(_profile(paths, generic) for paths in files.values()), generic]


def _files(home: Home) -> dict[str, list[Path]]:
    """Return each profile's pattern files; keys of a later one override."""
    return _by_name(updates.shipped() | updates.in_force(home), updates.files(home.config / "patterns"))


def _by_name(base: Mapping[str, Path], own: Mapping[str, Path]) -> dict[str, list[Path]]:
    names = dict.fromkeys([*own, *base])
    return {name: [files[name] for files in (base, own) if name in files] for name in names}


def _recognition(paths: Sequence[Path]) -> Profile:
    """Return only what recognises the profile's commands: the rest takes ten times as long to read."""
    keys: dict[str, Any] = {}
    for path in paths:
        keys |= PatternFile.read(path).fields(only=("commands", "interactive"))
    return Profile(paths[-1].stem, paths[-1], **keys)


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
