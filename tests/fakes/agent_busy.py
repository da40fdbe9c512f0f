"""Compute silently until told to continue (SIGUSR1), then ask a question and log the answer."""

import os
import signal
import sys

with open(os.environ["AGENT_LOG"], "ab", buffering=0) as log:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    os.write(1, b"thinking\n")
    signal.sigwait({signal.SIGUSR1})
    os.write(1, b"Install? [Y/n] ")
    log.write(b"answer: " + sys.stdin.buffer.readline())
    os.write(1, b"> ")
    for line in sys.stdin.buffer:
        log.write(line)
