"""A partition's log on disk in Kafka's format: segments, indexes, producer state, leader epochs, checkpoints, compaction.

All files of a log directory are written here, through the `Storage` seam. Nothing here reads a clock or a socket.
`partition_log` lists a log's parts, and `log_store` has all logs of a node.
"""
