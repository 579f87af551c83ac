"""Ottla beside Apache Kafka: its clients, its tools, its files, its answers."""
