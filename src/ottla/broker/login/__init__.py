"""Logins of connections: the gate before the first request, SASL per listener, waits after failed logins."""
