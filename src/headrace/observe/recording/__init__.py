"""Observations kept over time, made once and read by every view, later and elsewhere.

Here belongs what writes a recording while a fleet works, and what reads it back as an Observation. What goes
in is allow-listed: numbers under headrace's own words, the settings that `engines/` allow, redacted names. No
prompt, no answer and no key is ever near it.
"""
