"""The process of a memory backend: `python -P -m relay.memory.helper`, with a HelperSpec on standard input.

It opens the backend, reports {"ready": true} or {"error": ...} on standard output, and answers one call
after another on one thread, because a local store allows no more.  For a caller whose environment has other
keys, it opens the backend again.  A call that takes too long ends the process, because nothing else stops a
library; the next call starts another one.  The process also ends when nobody has been connected for some
time.
"""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from relay.dataclass import asdict
from relay.errors import MemoryStoreError
from relay.memory.backend import IdTaken, Memory, MemoryBackend, Scope
from relay.memory.calls import failure, perform, too_late
from relay.memory.in_process import made
from relay.memory.plugins import plugin
from relay.memory.remote import START_SECONDS, HelperSpec

MAX_REQUEST = 1 << 20
"""Maximum bytes of one request; a memory has at most 64 KB, which JSON makes longer."""

_HARD_SECONDS = 2.0
"""Further seconds after which the process ends without saying why, if the library holds the interpreter."""

_PREDECESSOR_SECONDS = 30.0
"""Seconds to wait for a helper that is closing its store."""


class Helper:
    """Serves the backend of `spec` to whoever connects to `spec.socket`. Raise MemoryStoreError."""

    def __init__(self, spec: HelperSpec) -> None:
        self._spec = spec
        self._environment: dict[str, str] = {}
        self._backend: MemoryBackend | None = None
        self._idle = asyncio.Event()
        self._callers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._open(spec.environment)

    async def serve(self, report: int) -> None:
        """Answer until idle. report: a descriptor that gets {"ready": true} when it listens, then closed."""
        path = self._spec.socket
        self._unlink()  # left by a helper that was killed
        server = await asyncio.start_unix_server(self._answer, path, limit=MAX_REQUEST)
        _report(report, {"ready": True})
        self._rest()
        await self._idle.wait()
        self._unlink()
        server.close()

    def close(self) -> None:
        """Close the backend. Closing twice does no harm."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._callers += 1
        if self._timer is not None:
            self._timer.cancel()
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self._result(line, writer)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            pass  # the caller went away, or its request was too long
        finally:
            writer.close()
            self._callers -= 1
            if self._callers == 0:
                self._rest()

    def _unlink(self) -> None:
        Path(self._spec.socket).unlink(missing_ok=True)

    def _rest(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._spec.idle, self._idle.set)

    def _result(self, line: bytes, writer: asyncio.StreamWriter) -> dict[str, Any]:
        try:
            request = json.loads(line)
            method, arguments = request["method"], _decoded(request["method"], request["arguments"])
            seconds, environment = float(request["seconds"]), dict(request["environment"])
        except (ValueError, KeyError, TypeError, MemoryStoreError) as error:
            return {"error": f"this is not a request: {error}."}
        try:
            backend = self._backend
            if backend is None or environment != self._environment:
                with _limited(self._spec.backend, START_SECONDS + seconds, writer):
                    backend = self._open(environment)
            with _limited(self._spec.backend, seconds, writer):
                value = perform(backend, self._spec.backend, method, *arguments)
        except MemoryStoreError as error:
            return {"error": str(error), "taken": isinstance(error, IdTaken)}
        return {"value": _encoded(value)}

    def _open(self, environment: dict[str, str]) -> MemoryBackend:
        """Open the backend with these variables, and return it. Raise MemoryStoreError if that fails."""
        try:
            self.close()
        except Exception as error:  # noqa: BLE001 (a library: anything may come; it is logged)
            failure(self._spec.backend, error)
        for name in self._environment:
            os.environ.pop(name, None)
        os.environ.update(environment)
        self._environment = environment
        self._backend = backend = opened(self._spec)
        return backend


@contextmanager
def _limited(what: str, seconds: float, writer: asyncio.StreamWriter) -> Iterator[None]:
    """End the process if the block takes longer than `seconds`, and tell the caller why."""
    descriptor = writer.get_extra_info("socket").fileno()

    def give_up() -> None:
        text = too_late(what, seconds)
        print(f"{time.strftime('%F %T')} {text}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback()
        os.write(descriptor, json.dumps({"error": text}).encode() + b"\n")
        os._exit(75)  # EX_TEMPFAIL (sysexits.h)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(seconds + _HARD_SECONDS, exit=True)
    try:
        yield
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()


def _decoded(method: str, arguments: list[Any]) -> list[Any]:
    match method, arguments:
        case "add", [memory]:
            return [Memory.from_json(memory)]
        case "search", [str(), scope, int()]:
            return [arguments[0], Scope(**scope), arguments[2]]
        case "list", [scope, int() | None]:
            return [Scope(**scope), arguments[1]]
        case "everything", []:
            return []
        case "delete", [str(), scope]:
            return [arguments[0], Scope(**scope)]
    raise ValueError(f"{method!r} with {len(arguments)} arguments")


def _encoded(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    return asdict(value) if isinstance(value, Memory) else [asdict(each) for each in value]


def opened(spec: HelperSpec) -> MemoryBackend:
    """Return the backend of `spec`. Raise MemoryStoreError if it cannot be opened."""
    try:
        if spec.backend == "custom":
            return made(_factory(spec), spec.config)
        return plugin(spec.backend).open(spec.config, Path(spec.data))
    except MemoryStoreError:
        raise
    except Exception as error:  # a library may raise anything
        raise MemoryStoreError(failure(spec.backend, error)) from error


def _factory(spec: HelperSpec) -> Any:
    """Return the object that "package.module:name" names. Raise MemoryStoreError if there is none."""
    module, _, name = spec.factory.partition(":")
    if spec.folder and spec.folder not in sys.path:
        sys.path.append(spec.folder)  # last: a project's queue.py must not shadow the standard one
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ModuleNotFoundError, AttributeError) as error:
        raise MemoryStoreError(
            f"memory: there is no {spec.factory!r}: {error}. Put the module beside the file that names it, "
            f"or install it where relay runs ({sys.executable})."
        ) from None
    except Exception as error:  # the user's module may raise anything
        raise MemoryStoreError(failure(spec.factory, error)) from error
    return found


def _report(descriptor: int, said: dict[str, Any]) -> None:
    os.write(descriptor, json.dumps(said).encode() + b"\n")
    os.close(descriptor)


def main() -> None:
    spec = HelperSpec(**json.loads(sys.stdin.buffer.read()))
    if os.fork():
        os._exit(0)  # the session need not reap the helper, which is not its child
    report = os.dup(1)
    os.dup2(2, 1)  # a library's output is not for the session
    os.set_inheritable(report, False)
    os.chdir(spec.folder or spec.data)  # the base of relative paths
    owner = os.open(
        spec.socket.removesuffix(".sock") + ".owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    faulthandler.enable()
    deadline = threading.Timer(_PREDECESSOR_SECONDS, os._exit, (75,))
    deadline.start()
    fcntl.flock(owner, fcntl.LOCK_EX)  # one owner at a time: the previous one may be closing its store
    deadline.cancel()
    try:
        helper = Helper(spec)
    except MemoryStoreError as error:
        _report(report, {"error": str(error)})
        return
    try:
        asyncio.run(helper.serve(report))
    finally:
        helper.close()


if __name__ == "__main__":
    main()
