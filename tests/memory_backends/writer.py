"""A process that owns a backend and endlessly adds memories; it prints each accepted id.

python writer.py BACKEND CONFIG(JSON) FOLDER
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

from memory.contract import ALICE
from relay.memory.backend import Memory
from relay_memory.mem0_backend import open_mem0
from relay_memory.qdrant_backend import open_qdrant


def numbered(number: int) -> Memory:
    """Return the memory with this number, of some kilobytes."""
    text = f"memory {number} " + f"filler{number} " * 300
    return Memory(
        f"n{number}", text, ALICE.agent, ALICE.team, number % 2 == 0, 1e9 + number, {"number": number}
    )


def main(backend: str, config: str, folder: str) -> None:
    opened = (open_mem0 if backend == "mem0" else open_qdrant)(json.loads(config), Path(folder))
    print("open", flush=True)
    for number in itertools.count():
        opened.add(numbered(number))
        print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
