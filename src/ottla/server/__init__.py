"""The composition root: a node put together from the real environment."""
