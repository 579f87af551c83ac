"""Ids, offsets, epochs, the error table and Decision: the nouns that every layer shares."""
