"""Show the first event of an asciicast, then repeat the others, PER_SECOND, until it is ended.

animation.py CAST PER_SECOND
"""

import itertools
import json
import os
import sys
import time
from pathlib import Path

screen, *frames = [
    json.loads(line)[2].encode() for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()[1:]
]
period = 1 / int(sys.argv[2])
os.write(1, screen)
due = time.monotonic()
for frame in itertools.cycle(frames):
    time.sleep(max(0.0, due - time.monotonic()))
    os.write(1, frame)
    due = max(due + period, time.monotonic() - 0.1)
