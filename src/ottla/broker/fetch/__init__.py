"""Incremental fetch sessions (KIP-227) and the cache that holds them."""
