"""A node put together, the composition root. `ottla.simulation` runs the same node on a simulated machine."""
