"""Run the code in RELAY_TEST_PATCH when session processes start, which relay executes by itself.

Python imports a module of this name at startup (site); tests/support.py puts this folder on PYTHONPATH.
"""

import os
import sys

if "relay/session/__main__.py" in " ".join(sys.orig_argv) and (code := os.environ.get("RELAY_TEST_PATCH")):
    exec(code)
