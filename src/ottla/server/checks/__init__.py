"""Checks of records that do not run on the loop: threads, a process, and the schemas that records are checked against."""
