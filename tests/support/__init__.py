"""What tests and bench share: real Apache Kafka, its tools, kcat, and a raw-frame client."""
