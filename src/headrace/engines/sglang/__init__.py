"""SGLang, 0.5.3 to 0.5.23: flags, what they resolve to, how memory is divided, what to change.

Belongs here: rules read from the engine's own source, each with the file that holds it. Does not belong here:
anything that another engine shares (`engines/plan`, `engines/settings`), or a judgement about a running
server.
"""
