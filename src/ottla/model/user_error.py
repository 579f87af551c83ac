"""Errors for a person: the command line, the console and the pipelines print the message and no traceback."""

from __future__ import annotations


class UserError(Exception):
    """What happened, where, and what to do, in one line. A person can put it right; it is no defect of the program."""
