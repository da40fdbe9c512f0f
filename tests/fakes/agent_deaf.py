"""A TUI that shows an input, switches bracketed paste on, and reads nothing."""

import os
import select
import tty

tty.setraw(0)
os.write(1, b"\x1b[?2004h> ")
select.select([], [], [])
