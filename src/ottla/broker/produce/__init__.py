"""Parts of the Produce handler: large batches, transactional batches, refusals of a whole request."""
