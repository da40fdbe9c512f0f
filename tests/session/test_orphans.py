"""A session reaps the processes it adopts, but not those that it started itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, os, subprocess
from relay.features.orphans import Orphans
from relay.features.orphans import _children
from relay.shim.adoption import adopt_orphans

adopt_orphans()

async def main():
    script = "sleep 1000 > /dev/null & echo $!; sh -c 'read line < pipe; :' > /dev/null & echo $!"
    living, dying = map(int, subprocess.run(["sh", "-c", script], stdout=-1).stdout.split())
    assert {living, dying} <= _children()
    work = asyncio.ensure_future(Orphans(look=0.05).run())
    open("pipe", "w").close()
    while dying in _children():
        await asyncio.sleep(0.01)
    assert living in _children()
    work.cancel()
    os.kill(living, 9)

os.mkfifo("pipe")
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no process can adopt others there")
def test_adopted_processes_leave_no_zombies(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, check=True, timeout=120)
