"""What an error of a vector store or of its client library means for the user, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relay.errors import ConfigError, MemoryStoreError
from relay.text import one_line

_DIMENSIONS = re.compile(r"dimension|could not broadcast|shapes? .* not aligned", re.IGNORECASE)
_OPEN_ELSEWHERE = re.compile(r"already accessed by another instance", re.IGNORECASE)
_CREDENTIALS = re.compile(
    r"\b40[13]\b|unauthorized|forbidden|authentication failed|no password supplied|incorrect api key|api_key",
    re.IGNORECASE,
)
_AWAY = re.compile(
    r"could(n't| not) (connect|get a connection)|connection (to server|refused|reset|error|failed|attempt)"
    r"|timed? ?out|name or service not known|name resolution|disconnected|server closed the connection"
    r"|consuming input failed|terminating connection",
    re.IGNORECASE,
)


@contextmanager
def explained(backend: str, doing: str, where: str, collection: str, folder: Path | None) -> Iterator[None]:
    """Turn any exception raised inside into a MemoryStoreError with advice.

    doing: what the user wanted, such as "save the memory". where: the store's place, without secrets.
    folder: the folder of a local store.
    """
    try:
        yield
    except MemoryStoreError:
        raise
    except ConfigError as error:
        raise MemoryStoreError(f"the {backend} backend: {error}") from error
    except Exception as error:  # client libraries pass on whatever their own libraries raise
        what = _meaning(error, where, collection, folder)
        raise MemoryStoreError(f"{backend} cannot {doing}: {what}") from error


def _meaning(error: BaseException, where: str, collection: str, folder: Path | None) -> str:
    said = " | ".join(f"{type(each).__name__}: {each}" for each in _chain(error))
    first = one_line(f"{type(error).__name__}: {error}", 200)
    if folder is not None and _OPEN_ELSEWHERE.search(said):
        return (
            f"the folder {folder} is open in {_owner(folder)}, and a local Qdrant store has one owner. "
            "Stop that process, set another 'path', or run a Qdrant server and set its 'url'."
        )
    if _CREDENTIALS.search(said):
        return f"{where} refuses the credentials ({first}). Check apiKey, or user and password."
    if _AWAY.search(said):
        return f"the server {where} does not answer ({first}). Start it, or correct its address."
    if _DIMENSIONS.search(said):
        return wrong_dimension(collection, first)
    if isinstance(error, OSError) and folder is not None:
        return f"the folder {folder} cannot be used ({first}). Free some space, and make it writable."
    return f"{first}. Check the store at {where}, and the memory settings."


def wrong_dimension(collection: str, detail: str) -> str:
    """Return advice for a collection whose vectors have another dimension than the embedder's."""
    return (
        f"the collection {collection!r} holds vectors of another model ({detail}). Use the embedder that it "
        "was created with; or export the memories with that one (`relay memory export`), set collectionName "
        "to a new name, and import them."
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield `error` and its causes; stop at a cycle."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _owner(folder: Path) -> str:
    """Return which process holds the lock of a local Qdrant folder, if the system tells."""
    lock = folder / ".lock"
    try:
        inode = f":{lock.stat().st_ino}"
        for line in Path("/proc/locks").read_text().splitlines():  # proc_locks(5)
            fields = line.split()
            if fields[5].endswith(inode) and int(fields[4]) > 0:
                command = (
                    Path(f"/proc/{fields[4]}/cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode("utf-8", "replace")
                )
                return f"another process (PID {fields[4]}: {one_line(command, 60)})"
    except (OSError, IndexError, ValueError):
        pass
    return f"another process (`fuser {lock}` names it)"
