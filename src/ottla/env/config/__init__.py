"""The configuration table: every setting of Kafka 4.3 once, with its type, default, check, mode and doc line."""

from __future__ import annotations

from .settings import Kind, Setting, Settings
from .topic import TopicConfig

__all__ = ["Kind", "Setting", "Settings", "TopicConfig"]
