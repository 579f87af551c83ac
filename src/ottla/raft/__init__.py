"""The quorum: Kafka's metadata log on disk, its snapshots, and the node that decides who leads and what is committed."""
