"""The same requests to Apache Kafka and to Ottla, the answers compared field by field.

`pair` sends and compares, `trees` makes answers comparable, `allowed` is the short list of differences that are right,
`scenarios/` holds the hand-picked requests: one function with @scenario runs at every version of its API.
"""
