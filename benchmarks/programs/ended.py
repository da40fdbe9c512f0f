"""Writes the time into a file as the last thing it does, after a word on its terminal if one is given."""

import os
import sys
import time

path, *words = sys.argv[1:]
if words:
    os.write(1, words[0].encode() + b"\n")
with open(path, "w") as file:
    file.write(str(time.monotonic()))
os._exit(3)
