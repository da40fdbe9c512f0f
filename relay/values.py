"""The types of values in the files that users write, and how to read their tables.

A kind checks a value and converts it. Mistakes are collected, each with its line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay import names
from relay.dataclass import dataclass, field
from relay.errors import ConfigError, ConfigMistakes, RelayError
from relay.text import one_line

if TYPE_CHECKING:
    from relay.toml_lines import KeyPath, TomlLines

_YEAR = 31_536_000
_HINTS = 100  # mistakes in a file, after which relay no longer looks for what was meant: 0.2 ms each


class Invalid(Exception):
    """A value is wrong; the text says how, and what to do."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A key in the file at `path` (Path(): in a program); `mistakes` has those of the whole file so far.

    line:  returns the line of a key.
    outer: how many of the keys, those of the table around it, messages leave out.
    """

    path: Path
    line: Callable[[KeyPath], int]
    keys: KeyPath = ()
    outer: int = 0
    mistakes: list[ConfigError] = field(default_factory=list)

    def at(self, *keys: str | int) -> Spot:
        """Return the spot of the key `keys` within this one."""
        return Spot(self.path, self.line, (*self.keys, *keys), self.outer, self.mistakes)

    def table(self, *keys: str | int) -> Spot:
        """Return the spot of the table `keys` within this one, which messages about its keys do not name."""
        inner = (*self.keys, *keys)
        return Spot(self.path, self.line, inner, len(inner), self.mistakes)

    def wrong(self, message: str) -> None:
        """Add a mistake at this key."""
        path = self.path if self.path.name else None
        self.mistakes.append(ConfigError(message, path, self.line(self.keys)))

    def __enter__(self) -> Spot:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        """Add an Invalid or another RelayError that was raised within to the mistakes, at this key."""
        if isinstance(error, Invalid | RelayError):
            self.wrong(str(error) if isinstance(error, Invalid) else f"{self.name}: {error}")
            return True
        return False

    def check(self) -> None:
        """Raise ConfigMistakes if there are any in the file."""
        if self.mistakes:
            raise ConfigMistakes(self.path, self.mistakes)

    def beside(self, path: str) -> Path:
        """Return `path`, which is relative to the file's folder, as an absolute path."""
        try:
            return (self.path.parent / Path(path).expanduser()).absolute()
        except RuntimeError:
            raise Invalid(f"{self.name}: {path!r} names no home folder. Write the full path.") from None

    @property
    def name(self) -> str:
        """The key as messages call it, such as `on_error[0].match`."""
        keys = self.keys[self.outer :] or self.keys
        return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")


def parse_toml(path: Path, content: bytes) -> tuple[dict[str, Any], Spot]:
    """Return what the TOML file at `path` contains, and the spot of its top. Raise ConfigError."""
    import tomli  # 3 ms, which commands that read no such file need not spend

    try:
        text = content.decode("utf-8")
        values = tomli.loads(text)
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 (byte {error.start + 1}). Save it as UTF-8.", path) from None
    except tomli.TOMLDecodeError as error:
        message = f"not valid TOML: {error.msg} (column {error.colno}). Fix that line."
        raise ConfigError(message, path, error.lineno) from None
    except RecursionError:
        raise ConfigError("lists or tables are nested too deeply. Nest fewer.", path) from None
    except ValueError as error:  # such as a number of 5,000 digits
        raise ConfigError(f"not valid TOML: {error}.", path) from None

    @cache
    def lines() -> TomlLines:
        from relay.toml_lines import TomlLines  # needed only after a mistake

        return TomlLines(text)

    return values, Spot(path, lambda keys: lines().of(keys))


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A kind of value. form: what docs and messages call it.

    read: returns the value; raises Invalid or another RelayError, or adds to the mistakes of the spot.
    """

    form: str
    read: Callable[[Any, Spot], Any]


@dataclass(frozen=True, slots=True)
class TableKey:
    """A key of a table: its kind, its default in TOML ("": there is none), and its help."""

    kind: ValueKind
    default: str
    help: str

    def read(self, value: Any, spot: Spot) -> Any:
        return self.kind.read(value, spot)


Keys = Mapping[str, ValueKind | TableKey]


def table(
    value: object,
    spot: Spot,
    keys: Keys,
    elsewhere: Callable[[str], str] = lambda name: "",
    what: str = "key",
) -> dict[str, Any]:
    """Return the valid values in the table at `spot`, and add its mistakes to those of the spot.

    elsewhere: returns a sentence that says where a misplaced key belongs, or "". what: the word for a key.
    """
    if not isinstance(value, dict):
        spot.wrong(f"{spot.name} must be a table, not {shown(value)}.")
        return {}
    found = {}
    for name, each in value.items():
        if name not in keys:
            hint = f"The {what}s are {', '.join(keys)}."
            if len(spot.mistakes) < _HINTS:
                hint = elsewhere(name) or names.did_you_mean(name, keys) or hint
            spot.at(name).wrong(f"unknown {what} {name!r}. {hint}".rstrip())
            continue
        with spot.at(name) as here:
            found[name] = keys[name].read(each, here)
    return found


def record(keys: Keys, make: Callable[[dict[str, Any], Spot], Any], what: str = "key") -> ValueKind:
    """Return the kind of tables that are read into what `make` returns; None for one with mistakes."""

    def read(value: Any, spot: Spot) -> Any:
        before = len(spot.mistakes)
        given = table(value, spot, keys, what=what)
        return make(given, spot) if len(spot.mistakes) == before else None

    return ValueKind("a table", read)


def shown(value: object) -> str:
    """Return `value` as a message shows it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and value.bit_length() > 200:  # Python refuses to write very long ones
        return one_line(hex(value), 60)
    return one_line(repr(value), 60)


def plain(
    kind: type | tuple[type, ...], form: str, valid: Callable[[Any], bool] = lambda value: True
) -> ValueKind:
    """Return the kind of values of this type for which `valid` is true; true and false are not numbers."""

    def read(value: Any, spot: Spot) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool) or not valid(value):
            raise Invalid(f"{spot.name} must be {form}, not {shown(value)}.")
        return value

    return ValueKind(form, read)


def are_words(items: list[Any]) -> bool:
    """Return True if all items are strings that can be program arguments."""
    return all(isinstance(each, str) and "\0" not in each for each in items)


TEXT = plain(str, "a string", lambda text: "\0" not in text)
FLAG = plain(bool, "true or false")
WORDS = plain(list, "a list of strings", are_words)


def whole(least: int = 0, most: int = 1_000_000_000) -> ValueKind:
    """Return the kind of whole numbers from `least` to `most`."""
    return _bounded(plain(int, f"a whole number, {least} or more", lambda value: value >= least), most)


def number(unit: str, least: float = 0, most: float = _YEAR) -> ValueKind:
    """Return the kind of numbers of `unit` from `least` to `most`; they are read as floats."""
    form = f"a number of {unit}, {least:g} or more"
    inner = _bounded(plain((int, float), form, lambda value: value >= least), most)
    return ValueKind(form, lambda value, spot: float(inner.read(value, spot)))


def _bounded(kind: ValueKind, most: float) -> ValueKind:
    def read(value: Any, spot: Spot) -> Any:
        if kind.read(value, spot) > most:
            raise Invalid(f"{spot.name} must be at most {most:,}, not {shown(value)}.")
        return value

    return ValueKind(kind.form, read)


def choice(options: Sequence[str]) -> ValueKind:
    """Return the kind of strings that are one of `options`."""
    quoted = [f'"{each}"' for each in options]
    form = " or ".join([*filter(None, [", ".join(quoted[:-1])]), quoted[-1]])

    def read(value: Any, spot: Spot) -> str:
        if isinstance(value, str) and value in options:
            return value
        hint = names.did_you_mean(value, options) if isinstance(value, str) else ""
        raise Invalid(f"{spot.name} must be {form}, not {shown(value)}. {hint}".rstrip())

    return ValueKind(form, read)


def checked(check: Callable[[str], object], form: str) -> ValueKind:
    """Return the kind of strings for which `check` raises no ValueError; its text becomes the message."""

    def read(value: Any, spot: Spot) -> str:
        text: str = TEXT.read(value, spot)
        try:
            check(text)
        except ValueError as error:
            raise Invalid(f"{spot.name}: {error}") from None
        return text

    return ValueKind(form, read)


def several(kind: ValueKind, form: str, *, alone: bool = False) -> ValueKind:
    """Return the kind of lists whose items `kind` reads, as tuples. alone: accept a single item, too."""

    def read(value: Any, spot: Spot) -> tuple[Any, ...]:
        if alone and not isinstance(value, list):
            return (kind.read(value, spot),)
        if not isinstance(value, list):
            raise Invalid(f"{spot.name} must be {form}, not {shown(value)}.")
        found = []
        for number, each in enumerate(value):
            with spot.at(number) as here:
                found.append(kind.read(each, here))
        return tuple(found)

    return ValueKind(form, read)
