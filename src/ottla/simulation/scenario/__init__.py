"""Scenarios of users: a cluster, its clients and its faults from a file, run in virtual time, with a verdict on every record."""
