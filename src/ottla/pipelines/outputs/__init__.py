"""Tables that a pipeline writes: executors stage rows, the driver commits names, counts and a marker. No row passes through
the driver."""
