"""Partitions as a replica sees them: leadership, ISR, high watermark, and who waits for it."""
