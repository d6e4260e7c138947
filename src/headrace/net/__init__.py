"""HTTP to servers: one client with limits, honest error kinds, and keys that never leak.

Belongs here: how bytes come and go. Does not belong here: what any server's answer means.
"""
