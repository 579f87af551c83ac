"""Generated messages and records; see tools/protocol. Never edited."""
