"""The seams to the machine as Protocols, the table of settings, logging, and requests to HTTP servers.

Only `logging` and `http_request` do I/O here.
"""
