"""The schema registry: Confluent's REST API over a compacted topic in Confluent's own format.

A surface: it speaks the wire (confluent-kafka) and works against Apache Kafka as well. `state` is replayed from the log
and nothing else changes it. `decisions` returns what to write. `writer` writes and waits until its own record is read.
"""
