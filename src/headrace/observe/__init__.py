"""Evidence in, one `Observation` out: live servers, logs, facts files, job folders.

Here belongs what collects: readers, windows, de-duplication of ranks, deltas of counters. What an engine's
metric or log line *means* stands in `engines/`; what a number *says* is for `diagnose/`. Nothing here
interprets.
"""
