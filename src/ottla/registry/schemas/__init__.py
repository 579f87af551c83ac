"""The three schema languages: parse, canonical form, compatibility, and checking a record's bytes. No I/O.

`parsed.py` is what they have in common; `parse.py` finds the one that is meant.
"""
