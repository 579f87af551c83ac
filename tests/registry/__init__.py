"""The schema registry, against Ottla and Apache Kafka."""
