"""Validation at the log: records held against their schemas, and the quarantine of records that do not match."""
