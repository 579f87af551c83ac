"""What a verb shows on a terminal, and the signals that stop a verb."""
