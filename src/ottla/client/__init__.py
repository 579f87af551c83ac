"""A small wire client for admin calls: synchronous, quick to import, the same against Ottla and Apache Kafka.

`Cluster` finds brokers, the controller and coordinators; `BrokerConnection` speaks to one of them;
`topics`, `configs`, `offsets` and `groups` are the calls that many tools share. Records are produced and consumed with confluent-kafka.
"""
