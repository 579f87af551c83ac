"""The checks of `ottla doctor`: connection, cluster, files, security."""
