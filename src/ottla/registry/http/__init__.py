"""Confluent's REST API: a table of paths, a file of handlers per noun, one place where an error becomes a response."""
