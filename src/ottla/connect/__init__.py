"""Connectors: data in from other systems and out to them, by configuration, with Kafka Connect's names and no JVM."""
