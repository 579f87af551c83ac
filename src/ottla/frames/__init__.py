"""Topics as tables of Python's data libraries: `ottla.read` and `ottla.write`."""
