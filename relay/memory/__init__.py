"""Memory: what agents ask to be remembered."""
