"""Apache Kafka's own command-line tools, as calls.

`run_tool` sends the call to one long-lived JVM per process (ToolServer.java), because a JVM start costs more than the
tool: on two cores 1-2 s against some 50 ms. Calls with fresh_jvm=True get a JVM of their own.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import struct
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.support.class_archives import kafka_options
from tests.support.kafka_jars import cache_dir, classpath, file_lock, java

TopicCommand = "org.apache.kafka.tools.TopicCommand"
ConfigCommand = "kafka.admin.ConfigCommand"
ConsoleProducer = "org.apache.kafka.tools.ConsoleProducer"
ConsoleConsumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
ConsumerGroupCommand = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GroupsCommand = "org.apache.kafka.tools.GroupsCommand"
GetOffsetShell = "org.apache.kafka.tools.GetOffsetShell"
DeleteRecordsCommand = "org.apache.kafka.tools.DeleteRecordsCommand"
LogDirsCommand = "org.apache.kafka.tools.LogDirsCommand"
DumpLogSegments = "org.apache.kafka.tools.DumpLogSegments"
StorageTool = "kafka.tools.StorageTool"
ProducerPerformance = "org.apache.kafka.tools.ProducerPerformance"
ConsumerPerformance = "org.apache.kafka.tools.ConsumerPerformance"
EndToEndLatency = "org.apache.kafka.tools.EndToEndLatency"
BrokerApiVersionsCommand = "org.apache.kafka.tools.BrokerApiVersionsCommand"
ClusterTool = "org.apache.kafka.tools.ClusterTool"
FeatureCommand = "org.apache.kafka.tools.FeatureCommand"
LeaderElectionCommand = "org.apache.kafka.tools.LeaderElectionCommand"
MetadataQuorumCommand = "org.apache.kafka.tools.MetadataQuorumCommand"
ReassignPartitionsCommand = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TransactionsCommand = "org.apache.kafka.tools.TransactionsCommand"
MetadataShell = "org.apache.kafka.shell.MetadataShell"

SHARED_CLASSES = "-Xshare:auto"
"""A JVM with this option also uses the class archive of Kafka's jars."""
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", SHARED_CLASSES, "-Dfile.encoding=UTF-8")

Result = subprocess.CompletedProcess[str]


def jvm_command(options: Sequence[str], *main: str, log_level: str = "error") -> list[str]:
    level = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}"
    archive = kafka_options() if SHARED_CLASSES in options else ()
    return [java(), *options, *archive, "-cp", classpath(), level, *main]


def run_tool(
    main_class: str,
    *args: str,
    input: str | None = None,  # noqa: A002 - as subprocess.run
    timeout: float = 60,
    fresh_jvm: bool = False,
) -> Result:
    """Run a tool to its end; subprocess.TimeoutExpired when it takes longer than `timeout` seconds."""
    if not fresh_jvm and _server.usable():
        return _server.run(main_class, args, input or "", timeout)
    command = jvm_command(_JVM, main_class, *args)
    return subprocess.run(command, input=input or "", capture_output=True, text=True, timeout=timeout, check=False)


def start_tool(main_class: str, *args: str) -> subprocess.Popen[str]:
    """A tool in a JVM of its own that runs beside the test; the caller ends it."""
    pipe = subprocess.PIPE
    return subprocess.Popen(jvm_command(_JVM, main_class, *args), stdin=pipe, stdout=pipe, stderr=pipe, text=True)


class ToolServer:
    """The long-lived JVM: started at the first call, one call at a time, replaced after a timeout."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def usable(self) -> bool:
        return shutil.which("javac") is not None

    def run(self, main_class: str, args: Sequence[str], stdin: str, timeout: float) -> Result:
        with self._lock:
            process = self._process or self._start()
            expired = threading.Event()

            def expire() -> None:
                expired.set()
                process.kill()

            timer = threading.Timer(timeout, expire)
            timer.start()
            try:
                code, out, err = self._exchange(process, [main_class, *args], stdin)
            except (EOFError, BrokenPipeError):
                self.close()
                if expired.is_set():
                    raise subprocess.TimeoutExpired([main_class, *args], timeout) from None
                raise
            finally:
                timer.cancel()
        return subprocess.CompletedProcess([main_class, *args], code, out, err)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [java(), *_JVM, *kafka_options(), "-cp", f"{classpath()}:{_compiled()}"]
        command += ["-Djava.security.manager=allow", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "ToolServer"]
        # The JVM itself only ever says on its stderr that security managers are deprecated.
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere)
        return self._process

    def _exchange(self, process: subprocess.Popen[bytes], words: list[str], stdin: str) -> tuple[int, str, str]:
        if process.stdin is None or process.stdout is None:
            raise EOFError("the tool server has no pipes")
        message = struct.pack(">i", len(words)) + b"".join(_sized(word) for word in [*words, stdin])
        process.stdin.write(message)
        process.stdin.flush()
        (code,) = struct.unpack(">i", _exactly(process, 4))
        out, err = (_exactly(process, struct.unpack(">i", _exactly(process, 4))[0]).decode() for _ in range(2))
        return code, out, err


def _sized(word: str) -> bytes:
    data = word.encode()
    return struct.pack(">i", len(data)) + data


def _exactly(process: subprocess.Popen[bytes], length: int) -> bytes:
    data = process.stdout.read(length) if process.stdout else b""
    if len(data) < length:
        raise EOFError("the tool server ended")
    return data


def _compiled() -> Path:
    """ToolServer.class, compiled once per version of its source."""
    source = Path(__file__).with_name("ToolServer.java")
    folder = cache_dir().with_name("ottla-tool-server") / hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    with file_lock(folder.with_name(folder.name + ".lock")):
        if not (folder / "ToolServer.class").exists():
            command = ["javac", "-cp", classpath(), "-d", str(folder), str(source)]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
    return folder


_server = ToolServer()
atexit.register(_server.close)
