"""One file per page: its routes, what it asks, what it shows."""
