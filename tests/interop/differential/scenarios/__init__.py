"""Hand-picked requests, one file per family of APIs."""
