"""Made-up fleets: the emulated server, and (later) the discrete-event kernel and its workloads.

Belongs here: anything that behaves like an engine without being one. What does not: an engine's own rules
(`engines/*/schedule` holds them, this room compiles them), and anything that talks to real servers.
"""
