"""Readers: the words of an agent as logical lines, each exactly once."""
