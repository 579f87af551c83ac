"""Where records come from: files, SQL databases, another cluster."""
