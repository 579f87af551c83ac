"""Apache Kafka's own tools by their own names: one module per tool, each with `main(arguments) -> exit code`.

Flags, columns, messages and exit codes are Kafka 4.3's, with the older spellings that still work there; Java's stack
traces and log lines are left out. `table.py` maps each tool to its module, `runner.py` runs a tool.
"""
