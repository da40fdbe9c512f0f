"""relay, whose sessions go without one feature: python relay_without.py FEATURE ARGUMENT..."""

import sys

from relay.session.features import FEATURES

del FEATURES[sys.argv.pop(1)]

from relay.__main__ import main  # noqa: E402 (the session is forked from this process)

sys.exit(main())
