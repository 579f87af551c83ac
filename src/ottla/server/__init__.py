"""A node put together from the real environment: one of the two composition roots. The other is `ottla.simulation`."""
