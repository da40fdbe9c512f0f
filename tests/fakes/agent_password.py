"""Ask for a password with ECHO off, log what was read, then read lines like an ordinary program."""

import getpass
import os
import sys

with open(os.environ["AGENT_LOG"], "ab", buffering=0) as log:
    log.write(f"password: {getpass.getpass('Code for you: ')}\n".encode())
    for line in sys.stdin.buffer:
        log.write(line)
