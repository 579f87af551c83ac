"""Who is on the other end, what they may do, how fast, and what is unreadable without a key."""
