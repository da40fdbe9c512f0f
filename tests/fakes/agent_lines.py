"""A line program: prints a prompt, reads a line, logs it, answers.

--prompt TEXT   the prompt (default "> "; empty for none)
--ask TEXT      after the first line, print TEXT as a question without a newline, and read its answer
"""

import os
import sys

arguments = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
prompt = arguments.get("--prompt", "> ")
question = arguments.get("--ask")
with open(os.environ["AGENT_LOG"], "ab", buffering=0) as log:
    while True:
        os.write(1, prompt.encode())
        line = sys.stdin.buffer.readline()
        if not line:
            break
        log.write(line)
        os.write(1, b"heard %d bytes\n" % len(line))
        if question:
            os.write(1, question.encode())
            question = None
            log.write(b"answer: " + sys.stdin.buffer.readline())
