"""The controller: every change of cluster metadata is decided here, as records, by one file for each concern."""
