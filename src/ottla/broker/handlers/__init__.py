"""One file per API, named after it; each has `handle(context, request)`."""
