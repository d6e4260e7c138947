"""Says a document: a job's status, a diagnosis, a comparison; in the terminal, as lines, as JSON, as metrics.

Belongs here: how a document looks. Does not belong here: deciding or computing what it says, reading files,
looking at the clock (`metrics` alone opens a port).
"""
