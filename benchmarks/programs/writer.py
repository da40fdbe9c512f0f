"""After SETTLE seconds, write SIZE bytes of text and record in REPORT how many seconds that took.

writer.py REPORT SIZE SETTLE
"""

import os
import sys
import time
from pathlib import Path

LINE = b"a line of plain text, as cat prints it from some log or other source file\n"
PIECE = 65536

report, size, settle = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
text = LINE * (PIECE // len(LINE) + 1)
time.sleep(settle)
started = time.monotonic()
left = size
while left > 0:
    left -= os.write(1, text[: min(left, PIECE)])
seconds = time.monotonic() - started
partial = report.with_suffix(".partial")
partial.write_text(str(seconds))
partial.rename(report)
