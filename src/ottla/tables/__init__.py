"""Topics as tables: record batches, fetched over the wire or mapped from segment files, decoded in bulk into Arrow."""
