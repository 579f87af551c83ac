"""Kafka's wire format: primitives, generated messages and records, record batches, framing, compression.

Bytes in, objects out, and back. Nothing here does I/O. `generated` is made by `tools/protocol` and never edited.
"""
