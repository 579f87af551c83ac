"""The broker's side of transactions: producer ids, markers, verification, requests to other brokers."""
