"""The benchmark: Ottla and Apache Kafka in one run, alternating, reported as ratios. Run it by `make bench`.

Nothing here imports `ottla`: the server is measured from outside, as a process, by clients that others wrote.
"""
