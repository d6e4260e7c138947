"""Feeds a fleet with a job: sources, request scheduling, ledger, shards, control channel.

Belongs here: the job, request and endpoint state machines and their one I/O shell; everything that
makes a completion durable. Does not belong here: what an engine's metrics mean (load signals arrive
through the protocol in `signals`), diagnosis, starting or stopping servers.
"""
