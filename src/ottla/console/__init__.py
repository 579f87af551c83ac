"""The web console: pages over the wire, for Ottla and for Apache Kafka alike. It never imports a broker."""
