"""Records of a topic for the verbs: positions, readers, filters, formats, encodings."""
