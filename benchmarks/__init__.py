"""Relay's speed and size, side by side with other programs in one run: `python -m benchmarks`."""
