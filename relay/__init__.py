"""relay: wrap any agent CLI in a pseudo-terminal and let agents talk."""
