"""Connectors of `ottla connect`: their runs in one process, and their status files."""
