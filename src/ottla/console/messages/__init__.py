"""Reading, searching, tailing, exporting and writing messages."""
