"""`python -m ottla.cli.kafka kafka-topics --list ...`: what the shims call."""

from ottla.cli.kafka.runner import main

main()
