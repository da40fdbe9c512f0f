"""Tools of those who work on relay; no part of what is installed."""
