"""A real OpenID provider: npm's oidc-provider, fetched once into the user's cache, run as a process of the test."""

from __future__ import annotations

import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Self
from urllib.parse import urljoin

import httpx

from tests.support.foreign_clients import _get
from tests.support.kafka_jars import Unavailable, cache_dir, file_lock

PACKAGE = "oidc-provider@9.13.3"
CLIENT_ID, CLIENT_SECRET = "ottla-console", "s e&c:ret"
_SCRIPT = Path(__file__).with_name("oidc_provider.mjs")


def oidc_provider_folder() -> Path:
    """Where its node_modules is; Unavailable where there is no node or npm cannot fetch it."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Unavailable("no node and npm on PATH")
    folder = cache_dir().with_name("ottla-" + PACKAGE.replace("@", "-"))
    with file_lock(folder.with_name(folder.name + ".lock")):
        if not (folder / "node_modules/oidc-provider/package.json").exists():
            _get(
                [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder), PACKAGE],
                folder,
            )
    return folder


class OidcProvider:
    def __init__(self) -> None:
        self._folder = oidc_provider_folder()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [shutil.which("node") or "node", str(_SCRIPT), str(self._folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        while not (line := self._process.stdout.readline()).startswith("ready "):
            assert line, "the provider did not start"
        self.issuer = f"http://127.0.0.1:{int(line.split()[1])}"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)

    def serve(self, home: str) -> None:
        """Know the console at this address as a client."""
        httpx.get(f"{self.issuer}/control/client", params={"home": home}, timeout=30).raise_for_status()

    def put_in(self, user: str, *groups: str) -> None:
        answer = httpx.get(f"{self.issuer}/control/groups", params={"user": user, "group": list(groups)}, timeout=30)
        answer.raise_for_status()


def log_in(browser: httpx.Client, start: str, account: str) -> httpx.Response:
    """As a browser does it: to the provider, its form, and back; the console's last answer."""
    answer = browser.get(start, follow_redirects=False)
    for _ in range(20):
        if answer.is_redirect:
            answer = browser.get(urljoin(str(answer.url), answer.headers["location"]), follow_redirects=False)
        elif "Sign in" in answer.text and "login" in answer.text and "/interaction/" in str(answer.url):
            answer = browser.post(str(answer.url), data={"login": account}, follow_redirects=False)
        else:
            return answer
    raise AssertionError(f"no end of redirects: {answer.url}")


def onward(answer: httpx.Response) -> str:
    """Where a page of the console sends the browser by itself."""
    found = re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', answer.text)
    assert found is not None, answer.text
    return unescape(found[1])
