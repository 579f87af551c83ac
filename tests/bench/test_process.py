"""CPU and memory are those of the whole family of a server, read from /proc."""

import os
import subprocess
import sys
import time

from bench.process import cpu_seconds, family, pss_mb, rss_mb, wait_until_quiet

# Burns half a second in a child that is waited for, then keeps another child and 80 MB.
_PARENT = """
import subprocess, sys, time
burn = "import time; end = time.process_time() + 0.5\\nwhile time.process_time() < end: pass"
subprocess.run([sys.executable, "-c", burn])
held = b"x" * 80_000_000
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def test_family_counts_children() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            assert set(family(process.pid)) == {process.pid, child}
            assert 0.5 <= cpu_seconds(process.pid) < 5
            assert 80 < rss_mb(process.pid) < 400
            assert 0 < pss_mb(process.pid) <= rss_mb(process.pid) + 1
            assert rss_mb(process.pid) > rss_mb(child) > 0
        finally:
            os.kill(child, 9)
            process.kill()


def test_quiet_is_awaited_with_patience() -> None:
    began = time.monotonic()
    wait_until_quiet([], patience_s=60)
    assert time.monotonic() - began < 30
    burn = [sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(burn) as process:
        began = time.monotonic()
        wait_until_quiet([process.pid], share=0.01, patience_s=0.6)
        process.kill()
    assert 0.5 < time.monotonic() - began < 30
