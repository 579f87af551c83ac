"""The client JVM (java/BenchClient.java): started once, given one command at a time, each bounded by a timeout."""

from __future__ import annotations

import base64
import queue
import subprocess
import threading
from pathlib import Path

from tests.support.kafka_jars import classpath, java

_SOURCE = Path(__file__).resolve().parent / "java" / "BenchClient.java"


class ClientError(Exception):
    """A client load failed or did not end in time."""


class JavaClient:
    """After a timeout the JVM is killed; the next command starts a new one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._replies: queue.Queue[bytes] = queue.Queue()

    def _start(self) -> subprocess.Popen[bytes]:
        options = [
            "-Xms1g",
            "-Xmx1g",
            "-XX:+UseG1GC",
            "-Duser.language=en",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        ]
        process = subprocess.Popen(
            [java(), *options, "-cp", classpath(), str(_SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        replies: queue.Queue[bytes] = queue.Queue()

        def read() -> None:
            if process.stdout is not None:
                for line in process.stdout:
                    replies.put(line)
            replies.put(b"")

        threading.Thread(target=read, daemon=True).start()
        self._process, self._replies = process, replies
        return process

    def run(self, *words: object, timeout_s: float) -> str:
        """What the command printed. Raises ClientError when it failed or took too long."""
        process = self._process if self._process is not None and self._process.poll() is None else self._start()
        if process.stdin is None:
            raise ClientError("the client JVM has no input")
        process.stdin.write(("\t".join(str(word) for word in words) + "\n").encode())
        process.stdin.flush()
        try:
            line = self._replies.get(timeout=timeout_s)
        except queue.Empty:
            self.close()
            raise ClientError(f"{words[0]} took more than {timeout_s:g} s") from None
        if not line:
            self.close()
            raise ClientError("the client JVM ended")
        status, _, encoded = line.decode().strip().partition("\t")
        printed = base64.b64decode(encoded).decode()
        if status != "ok":
            raise ClientError(f"{words[0]}: {printed[-500:].strip()}")
        return printed

    def tool(self, name: str, *arguments: object, timeout_s: float) -> str:
        return self.run("tool", f"org.apache.kafka.tools.{name}", *arguments, timeout_s=timeout_s)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
