"""`relay top`: all agents on one screen, and what they need from you."""
