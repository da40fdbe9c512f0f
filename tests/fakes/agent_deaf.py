"""A TUI that shows an input, enables bracketed paste, and reads nothing."""

import os
import select
import tty

tty.setraw(0)
os.write(1, b"\x1b[?2004h> ")
select.select([], [], [])
