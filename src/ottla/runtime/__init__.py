"""The real environment: sockets, disk, clock, loop."""
