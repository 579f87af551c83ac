"""Logs and metrics of many machines in one topic: a lake of all records, alerts, and a dashboard."""
