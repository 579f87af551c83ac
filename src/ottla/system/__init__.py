"""What operating systems do differently: every call that only some of them have is in this package.

Each function asks what the system has and falls back where something is missing, so that a node runs on Linux and on
macOS. `question_process.py` has a child process with a limit of memory. The rest of Ottla calls these functions;
`tests/test_systems.py` refuses such a call anywhere else. Logic does not import this package: it reaches the machine
through `ottla.env.seams`.
"""
