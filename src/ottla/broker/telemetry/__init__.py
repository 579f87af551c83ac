"""Client telemetry (KIP-714): subscriptions of clients, and the part of OTLP that clients push."""
