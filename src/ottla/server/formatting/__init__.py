"""Formatting of log directories: the command, the first users of a cluster, the check that a directory is formatted."""
