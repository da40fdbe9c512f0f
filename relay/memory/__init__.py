"""Memory: texts that agents ask relay to remember."""
