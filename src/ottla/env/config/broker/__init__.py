"""The server's settings, one module per group."""
