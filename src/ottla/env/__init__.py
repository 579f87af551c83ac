"""The seams to the machine as Protocols, the table of settings, and logging. Nothing here does I/O but the log."""
