"""The census: births and deaths are a log, and the population follows for the end of any month."""
