"""The audit trail of the surfaces: events, where they are written, and the queue between them."""
