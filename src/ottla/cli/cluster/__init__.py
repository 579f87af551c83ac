"""Plans, moves and reports of `ottla cluster`."""
