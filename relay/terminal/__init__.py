"""The terminal: the pseudo-terminal, the bytes through it, and the virtual screen."""
