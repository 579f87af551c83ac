"""Topics that the broker creates by itself: on a client's request for metadata, for coordinators, for Kafka Streams."""
