"""The three schema languages: parse, canonical form, compatibility, and checking a record's bytes. No I/O.

`parsed.py` has what the languages have in common; `parse.py` selects the parser by the schema type.
"""
