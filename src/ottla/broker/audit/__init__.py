"""The audit log: its events, and the writer that appends them to `__ottla_audit`."""
