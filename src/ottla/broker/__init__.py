"""Connections, dispatch and one handler per API: requests in, responses out, no sockets."""
