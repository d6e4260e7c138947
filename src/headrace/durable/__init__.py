"""Writes that survive kill -9 and power loss: one small disk, folder locks, what file system lies below.

Belongs here: every way in which headrace makes bytes durable, and the recording of it that the crash
tests replay. Does not belong here: what the bytes mean.
"""
