"""The growth of relay: hundreds of simulated agents, dozens of real sessions, on one machine."""
