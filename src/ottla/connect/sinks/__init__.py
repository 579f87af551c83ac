"""Tables of other systems that rows are put into, each piece of work exactly once."""
