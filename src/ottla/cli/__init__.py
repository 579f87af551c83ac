"""The command line: thin commands over the server and, later, the wire."""
