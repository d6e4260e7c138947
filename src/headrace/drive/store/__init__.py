"""What a job keeps on disk: prompts' index and ledger, durable rows, shards; opening, recovery, reading back.

Belongs here: everything that makes a completion durable, and finds it again after a crash. Does not belong
here: who is asked, and when.
"""
