"""Where tables lie: the one place that reads a path or URI and opens its file system.

Everything that takes a path comes here: outputs of pipelines, sinks of connectors, readers of Delta tables. A path without
a scheme, and `file:`, is a local folder. `s3`, `s3a`, `gs`, `abfs`, `abfss` and `hdfs` are file systems of pyarrow; an S3
location may name its server: `s3://bucket/path?endpoint=http://host:port&region=eu-1`. Any other scheme is refused: as a
local path it would swallow rows in a folder that nobody reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ottla.model.user_error import UserError

SCHEMES = ("file", "s3", "s3a", "gs", "abfs", "abfss", "hdfs")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//)?")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    text: str
    """As it was given, for messages."""
    scheme: str
    uri: str
    """A local path, absolute; or the URI without its query."""
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    def file_system(self) -> tuple[Any, str]:
        """A pyarrow file system and the path in it. An hdfs location connects here, other file systems when they are used."""
        from pyarrow import fs

        if self.is_local:
            return fs.LocalFileSystem(), self.uri
        if self.scheme == "s3":
            parts, endpoint = urlsplit(self.uri), self._endpoint()
            server = urlsplit(endpoint) if endpoint else None
            store = fs.S3FileSystem(
                region=self._region(),
                endpoint_override=server.netloc if server else None,
                scheme=server.scheme if server else "https",
            )
            return store, f"{parts.netloc}{parts.path}".rstrip("/")
        query = "&".join(f"{name}={value}" for name, value in self.query.items())
        try:
            store, path = fs.FileSystem.from_uri(f"{self.uri}?{query}" if query else self.uri)
        except (OSError, ValueError) as problem:
            raise UserError(
                f"{self.text} cannot be reached: {store_advice(problem) or str(problem).splitlines()[0]}"
            ) from problem
        return store, str(path).rstrip("/")

    def make_folder(self) -> tuple[Any, str]:
        """The file system of a folder that is there afterwards; a store that does not answer is one sentence."""
        store, path = self.file_system()
        try:
            store.create_dir(path, recursive=True)
        except OSError as problem:
            raise UserError(
                f"{self.text} cannot be reached: {store_advice(problem) or str(problem).splitlines()[0]}"
            ) from problem
        return store, path

    def storage_options(self) -> dict[str, str]:
        """For delta-rs, which reads credentials from the environment by itself."""
        if self.scheme != "s3":
            return {}
        endpoint = self._endpoint()
        options = {"AWS_REGION": self._region()}
        if endpoint:
            options["AWS_ENDPOINT_URL"] = endpoint
            options["AWS_ALLOW_HTTP"] = str(endpoint.startswith("http://")).lower()
        return options

    def iceberg_properties(self) -> dict[str, str]:
        """For pyiceberg: the folder of a catalog's tables, and how to reach it."""
        properties = {"warehouse": f"file://{self.uri}" if self.is_local else self.uri}
        if self.scheme == "s3":
            properties["s3.region"] = self._region()
            endpoint = self._endpoint()
            if endpoint:
                properties["s3.endpoint"] = endpoint
        return properties

    def _endpoint(self) -> str | None:
        endpoint = self.query.get("endpoint")
        return endpoint or next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)

    def _region(self) -> str:
        return self.query.get("region") or os.environ.get("AWS_REGION") or "us-east-1"


def locate(text: str) -> Location:
    """UserError for a scheme that nothing here can write to."""
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    if match is None or (match[2] is None and scheme not in SCHEMES):  # a colon in a file's name is no scheme
        return Location(text=text, scheme="file", uri=os.path.abspath(text))
    if scheme not in SCHEMES:
        raise UserError(f"the location {text} has the unknown scheme {scheme}: use a local path, or {_known_schemes()}")
    if scheme == "file":
        return Location(text=text, scheme=scheme, uri=os.path.abspath(_local_path(text)))
    parts = urlsplit(text)
    if not parts.netloc and scheme != "hdfs":
        raise UserError(f"the location {text} names no bucket: write {scheme}://BUCKET/PATH")
    scheme = "s3" if scheme == "s3a" else scheme
    uri = f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    return Location(text=text, scheme=scheme, uri=uri, query=dict(parse_qsl(parts.query)))


def absolute(text: str) -> str:
    """A location that means the same in every folder and process."""
    location = locate(text)
    return location.uri if location.is_local else text


def _local_path(text: str) -> str:
    parts = urlsplit(text)
    if parts.netloc not in {"", "localhost"}:
        raise UserError(f"the location {text} names the host {parts.netloc}: a local folder is file:///PATH")
    return unquote(parts.path)


def _known_schemes() -> str:
    return f"{', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}"


_ADVICE = (
    (
        ("NoSuchBucket", "NO_SUCH_BUCKET", "allow_bucket_creation"),
        "the bucket does not exist, or its name is not the login's to see: create the bucket, or correct the path and the keys",
    ),
    (
        (
            "ACCESS_DENIED",
            "AccessDenied",
            "SignatureDoesNotMatch",
            "InvalidAccessKeyId",
            "access key ID",
            "403 Forbidden",
        ),
        (
            "the store refuses the login: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of the driver and "
            "of the executors, and the rights on the bucket"
        ),
    ),
    (("Connection refused",), "nothing answers at the address: check it, and whether the server runs"),
)
"""What to do, by the words of stores in the errors of delta-rs, pyiceberg and Arrow."""


def store_advice(problem: BaseException) -> str:
    """What to do about an error of an object store; empty for other errors."""
    text = str(problem)
    for words, advice in _ADVICE:
        if any(word in text for word in words):
            return advice
    answer = re.search(r"<Code>(\w+)</Code>\s*<Message>([^<]+)", text)
    return f"the store answers {answer[1]}: {answer[2]}" if answer else ""
