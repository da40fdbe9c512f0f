"""The relay.config.py of the user and of the project, and the handlers/*.py beside each.

    find ──→ read ──→ trusted? ──→ load ──→ handlers and memory settings
                         └─ no: a one-line notice; the session starts without that file

The user's own files always apply, and a project's add to them: no project can switch off the user's guards.

relay executes exactly the bytes that it hashed. Trust does not cover the modules that the file imports.
"""

from __future__ import annotations

import ast
import contextvars
import os
import re
import shlex
import sys
import traceback
from collections.abc import Collection, Mapping
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from types import ModuleType

from relay.dataclass import dataclass, field
from relay.errors import ConfigError
from relay.home import Home
from relay.hooks import prints
from relay.hooks.config import RelayConfig
from relay.hooks.registry import Registry, registering
from relay.hooks.threads import WorkerPool
from relay.hooks.trust import Trust, digest
from relay.memory.config import MemoryConfig
from relay.settings import nearest
from relay.text import one_line

FILE = "relay.config.py"

HANDLERS = "handlers"
"""The folder beside it whose modules that import relay are read like it."""

LOAD_TIMEOUT = 10.0
"""Seconds that the top level of a file may take; slower work belongs in a handler."""

_MODULE = "relay_config"
_IMPORTS_RELAY = re.compile(rb"^(?:from|import) relay\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A relay.config.py as read; `source` will be executed."""

    path: Path
    source: bytes

    @property
    def digest(self) -> str:
        return digest(self.source)


@dataclass(frozen=True, slots=True)
class Choice:
    """The files that a session uses, the user's own first; each relay.config.py before its handlers.

    untrusted: a notice for each file that may not run. errors: what could not be read. Both by path.
    paths: of all of these, the user's own first.
    """

    files: tuple[ConfigFile, ...] = ()
    untrusted: Mapping[Path, str] = field(default_factory=dict)
    errors: Mapping[Path, ConfigError] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """The handlers that a file registered, its memory settings if any, its channels, and what it printed."""

    registry: Registry
    memory: MemoryConfig | None
    printed: str = ""
    channels: tuple[str, ...] = ()


def find(directory: Path) -> Path | None:
    """Return the project's relay.config.py for an agent in `directory`; None if there is none.

    This is the nearest one, up to the project's root (the folder with .git) or the home folder.
    """
    return nearest(directory, FILE)


def choose(home: Home, directory: Path, explicit: Path | None = None, known: Collection[Path] = ()) -> Choice:
    """Find the user's own files and the project's, read them, and check which may run.

    explicit: the file given with --config, in place of the project's. The user's own files need no trust; all
    others do. known: handlers that were in force, and count whatever they contain now.
    """
    own = home.config / FILE
    project = explicit.absolute() if explicit else find(directory)
    paths = [own, *handler_files(own, known)] if own.is_file() else []
    if project is not None and project.resolve() != own.resolve():
        paths += [project, *handler_files(project, known)]
    files: list[ConfigFile] = []
    untrusted: dict[Path, str] = {}
    errors: dict[Path, ConfigError] = {}
    for path in paths:
        try:
            file = read(path)
        except ConfigError as error:
            errors[path] = error
            continue
        if is_own(path, home) or Trust(home).covers(path, file.source):
            files.append(file)
        else:
            command = f"relay trust {shlex.quote(str(path))}"
            untrusted[path] = (
                f"{path} is not trusted, so it does not run. Read it, run `{command}`, then start again."
            )
    return Choice(tuple(files), untrusted, errors, tuple(paths))


def handler_files(config: Path, known: Collection[Path] = ()) -> list[Path]:
    """Return the modules in handlers/ beside a relay.config.py that import relay; others may be a program's.

    known: as for `choose`.
    """
    if config.name != FILE:
        return []
    found = []
    for path in sorted((config.parent / HANDLERS).glob("[!_.]*.py")):
        try:
            if path in known or _IMPORTS_RELAY.search(path.read_bytes()):
                found.append(path)
        except OSError:
            found.append(path)  # `read` says why
    return found


def is_own(path: Path, home: Home) -> bool:
    """Return True if the file is the user's own, which needs no trust."""
    return path == home.config / FILE or path.parent == home.config / HANDLERS


def read(path: Path) -> ConfigFile:
    """Return the file at `path`. Raise ConfigError if it cannot be read."""
    try:
        return ConfigFile(path, path.read_bytes())
    except FileNotFoundError:
        raise ConfigError("there is no such file. Check the path given to --config.", path) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", path) from None


def changed(path: Path, digest_then: str) -> bool:
    """Return True if the file no longer has this digest, or is gone."""
    try:
        return digest(path.read_bytes()) != digest_then
    except OSError:
        return True


def load(file: ConfigFile, built_in: Registry, *, timeout: float = LOAD_TIMEOUT) -> Loaded:
    """Execute `file` in its own thread; "builtin" in it refers to `built_in`, which is not changed.

    Raise ConfigError, with the line and advice, for any error in it, sys.exit included, and if
    it takes longer than `timeout` seconds.
    """
    prints.capture()
    printed = prints.Printed()
    context = contextvars.copy_context()
    context.run(prints.printed.set, printed)
    workers = WorkerPool()
    call = workers.submit(partial(_execute, file, built_in), context)
    workers.close()
    wait([call.done], timeout)
    if not call.done.done() and call.abandon():
        raise ConfigError(
            f"loading did not finish within {timeout:g} s. Move slow work into a handler.",
            file.path,
            call.line_in(file.path),
        )
    finished = call.done.result()
    if finished.error is not None:
        raise finished.error
    registry, config = finished.value
    return Loaded(
        registry,
        config.memory_config(str(file.path.parent.absolute())),
        printed.take(),
        tuple(config.channels),
    )


def _execute(file: ConfigFile, built_in: Registry) -> tuple[Registry, RelayConfig]:
    registry = Registry()
    name = f"{_MODULE}_{digest(os.fsencode(file.path))[:8]}"  # the same after a change: pickles stay valid
    module = ModuleType(name)
    module.__file__ = str(file.path)
    # The module must be found under its name: dataclasses resolves the annotations of the user's classes
    # there, and pickle the classes themselves.
    sys.modules[name] = module
    folder = str(file.path.parent.absolute())
    if folder not in sys.path:
        sys.path.append(folder)  # last: a project's queue.py must not shadow the standard one
    try:
        code = compile(file.source, str(file.path), "exec", dont_inherit=True)
        with registering(registry):
            exec(code, module.__dict__)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (it is the user's code: anything may come)
        raise _explained(error, file) from None
    config = getattr(module, "config", None)
    if config is None:
        return registry, RelayConfig()
    line = None  # of the last assignment to `config`
    for node in ast.parse(file.source).body:
        if isinstance(node, ast.Assign) and "config" in [getattr(each, "id", "") for each in node.targets]:
            line = node.lineno
    if not isinstance(config, RelayConfig):
        raise ConfigError(
            f"config is {one_line(repr(config), 40)} ({type(config).__name__}); write config = "
            "RelayConfig(patterns=..., hooks=..., memory=...), after `from relay import RelayConfig`.",
            file.path,
            line,
        )
    try:
        config.apply(registry, built_in)
    except ConfigError as error:
        raise ConfigError(str(error), file.path, line) from None
    return registry, config


def _explained(error: BaseException, file: ConfigFile) -> ConfigError:
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == str(file.path)]
    line = lines[-1] if lines else None
    match error:
        case ConfigError() if error.path is not None:
            return error
        case ConfigError():
            what = str(error)
        case SyntaxError() if error.filename == str(file.path):
            line = error.lineno
            what = f"this is not Python: {error.msg}. Fix the line."
        case ModuleNotFoundError():
            what = (
                f"there is no module {error.name!r}. Put it next to this file, or install it where relay "
                f"runs: {sys.executable} -m pip install {(error.name or '').partition('.')[0]}"
            )
        case ImportError():
            what = f"{error}. Check the imported name."
        case SystemExit():
            what = "the file calls sys.exit while loading. Remove that call; only what it registers matters."
        case _:
            text = one_line(str(error), 200)
            what = f"loading failed with {type(error).__name__}" + (f": {text}" if text else "") + "."
    return ConfigError(what, file.path, line)
