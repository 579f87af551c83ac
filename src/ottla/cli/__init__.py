"""The command line: a verb starts a server or speaks the wire, and imports nothing of a node."""
