"""How relay grows: hundreds of simulated agents, dozens of real sessions, on one machine."""
