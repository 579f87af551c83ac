"""`python -m ottla` is `ottla`."""

from __future__ import annotations

from ottla.cli.main import main

main()
