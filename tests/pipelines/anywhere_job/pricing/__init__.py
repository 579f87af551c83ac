"""A package beside the pipeline file: executors get it from there."""
