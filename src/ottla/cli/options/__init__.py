"""Options that several verbs share, and where their values come from."""
