"""Readers: what the agent said, as logical lines, each exactly once."""
