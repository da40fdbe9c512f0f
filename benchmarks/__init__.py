"""Benchmarks of relay's speed and size, compared with other programs in one run: `python -m benchmarks`."""
