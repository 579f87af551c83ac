"""Big data: a batch view and a speed view over one log, with one function, equal at the end."""
