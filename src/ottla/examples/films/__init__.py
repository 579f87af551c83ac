"""The film service: positions of viewers become resume points, profiles, recommendations and a table for analysis."""
