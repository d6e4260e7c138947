"""vLLM (V1), 0.20 to 0.33: flags, what they resolve to, the block pool, what to change.

Belongs here: rules read from the engine's own source, each with the file that holds it. Does not belong here:
anything that another engine shares (`engines/plan`, `engines/settings`), or a judgement about a running
server.
"""
