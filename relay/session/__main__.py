"""An agent's session process, started by its shim: `python -P relay/session/__main__.py ORDERS`.

ORDERS is the descriptor of a socket to the shim, which sends everything else.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relay.session.options import Options


def run(orders: int, options: Options | None = None) -> int:
    """Run a session; return its process's exit code. options: given by a program."""
    gc.disable()  # until the session is ready: a tenth of its start; the modules stay anyway
    from relay.session.session import main
    from relay.session.started import Started
    from relay.shim.adoption import adopt_orphans
    from relay.terminal.shim_link import ShimLink

    adopt_orphans()  # our own orphans: they are not the agent's
    link = ShimLink(orders)
    return main(Started.of(link, options))


if __name__ == "__main__":
    ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if ROOT not in sys.path:
        sys.path.append(ROOT)  # a checkout that is not installed
    sys.exit(run(int(sys.argv[1])))
