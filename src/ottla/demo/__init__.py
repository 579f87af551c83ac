"""`make demo`: a log, two streams of data into it, pipelines over them, and what came out, as tables."""
