"""`ottla up --secure`: TLS, logins, ACLs and a login for console and registry, all in the folder `secure` of the directory.

The folder is made once: an authority and its certificate, the password of the user `admin`, and settings for clients. No
secret is printed, logged, or on a command line; each file that holds a secret is readable by its owner only.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from ottla.server.errors import StartupError
from ottla.server.up.certificates import NODE_NAME, prepare_certificates, write_private

FOLDER = "secure"
ADMIN = "admin"
MECHANISM = "SCRAM-SHA-512"
_ITERATIONS = 8192
_PASSWORD_BYTES = 24
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

LISTENERS = """\
listeners=SASL_SSL://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=SASL_SSL://{name}:{port},CONTROLLER://{name}:{controller_port}
listener.security.protocol.map=SASL_SSL:SASL_SSL,CONTROLLER:SSL
inter.broker.listener.name=SASL_SSL
"""
SECURITY = """\
# TLS, logins and access rules of `ottla up --secure`. The password is in secure/password.
sasl.enabled.mechanisms={mechanism}
sasl.mechanism.inter.broker.protocol={mechanism}
listener.name.sasl_ssl.{mechanism_name}.sasl.jaas.config={login}
ssl.keystore.type=PEM
ssl.keystore.location={server}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
listener.name.controller.ssl.client.auth=required
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{admin};User:CN={node}
ottla.http.users.file={users}
ottla.http.tls.certificate={server}
"""


class SecureFolder:
    """The files of one directory. `prepare` makes what is missing; nothing that exists is changed."""

    def __init__(self, directory: Path) -> None:
        self._folder = (directory / FOLDER).absolute()
        self.authority = self._folder / "ca.pem"
        self._authority_key = self._folder / "ca.key"
        self.server = self._folder / "server.pem"
        self.users = self._folder / "users"
        self._password_file = self._folder / "password"
        clients = self._folder / "clients"
        self.java = clients / "java.properties"
        self.librdkafka = clients / "librdkafka.properties"
        self.aiokafka = clients / "aiokafka.json"

    @property
    def exists(self) -> bool:
        return self._password_file.exists()

    @property
    def password(self) -> str:
        return self._password_file.read_text("utf-8").strip()

    def prepare(self, host: str, bootstrap_servers: str) -> None:
        """Raises StartupError if the folder cannot be written."""
        from ottla.security.web_users import hash_password

        try:
            self.java.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._refuse_files_of_others()
            self._folder.chmod(0o700)
            if not self.exists:
                write_private(self._password_file, secrets.token_urlsafe(_PASSWORD_BYTES).encode() + b"\n")
            if not self.password:
                raise ValueError(f"{self._password_file} is empty: write the password of {ADMIN} into the file")
            hosts = [host, bootstrap_servers.rpartition(":")[0].strip("[]")]
            prepare_certificates(self.authority, self._authority_key, self.server, hosts)
            if not self.users.exists():
                write_private(self.users, f"{ADMIN}:admin:{hash_password(self.password)}\n".encode())
            self._write_clients(bootstrap_servers)
        except (OSError, ValueError, TypeError) as error:
            raise StartupError(f"cannot prepare {self._folder}: {error}") from error

    @contextlib.contextmanager
    def removed_on_failure(self) -> Iterator[None]:
        """Removes the folder again if the start fails before the node has its ports. A folder from before stays."""
        had_folder, had_directory = self._folder.exists(), self._folder.parent.exists()
        ended = False
        try:
            yield
            ended = True
        finally:
            if not ended and not had_folder:
                shutil.rmtree(self._folder, ignore_errors=True)
            if not ended and not had_directory:
                with contextlib.suppress(OSError):  # a different program has written there meanwhile
                    self._folder.parent.rmdir()

    def _refuse_files_of_others(self) -> None:
        """Raises ValueError: a stranger who prepared the folder knows the password and the key."""
        for path in (self._folder, *self._folder.iterdir()):
            if path.is_symlink() or path.lstat().st_uid != os.geteuid():
                raise ValueError(f"{path} is a link, or of a different user: remove the file, or choose another --dir")

    def _write_clients(self, bootstrap_servers: str) -> None:
        java = {
            "bootstrap.servers": bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": self.login,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
        }
        librdkafka = {
            "bootstrap.servers": bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": ADMIN,
            "sasl.password": self.password,
            "ssl.ca.location": str(self.authority),
        }
        aiokafka = {
            "bootstrap_servers": bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": ADMIN,
            "sasl_plain_password": self.password,
        }
        for path, settings in ((self.java, java), (self.librdkafka, librdkafka)):
            lines = "".join(f"{name}={value}\n" for name, value in settings.items())
            write_private(path, lines.encode())
        write_private(self.aiokafka, json.dumps(aiokafka, indent=2).encode() + b"\n")

    @property
    def login(self) -> str:
        return f'{_MODULE} required username="{ADMIN}" password="{self.password}";'

    def properties(self) -> str:
        """The lines of server.properties, without the listeners."""
        return SECURITY.format(
            mechanism=MECHANISM,
            mechanism_name=MECHANISM.lower(),
            login=self.login,
            server=self.server,
            authority=self.authority,
            admin=ADMIN,
            node=NODE_NAME,
            users=self.users,
        )

    def first_user(self) -> str:
        """The argument of `ottla storage format --add-scram`."""
        return f"{MECHANISM}=[name={ADMIN},iterations={_ITERATIONS},password={self.password}]"

    def environment(self, registry_url: str | None) -> dict[str, str]:
        """For registry and console: the authority that they trust, and logins, which no command line may show."""
        login = f"{ADMIN}:{self.password}"
        variables = {"SSL_CERT_FILE": str(self.authority), "OTTLA_CONSOLE_NODE_USER": login}
        if registry_url is not None:
            variables["OTTLA_CONSOLE_REGISTRY"] = registry_url.replace("://", f"://{login}@", 1)
        return variables

    def web_options(self) -> list[str]:
        return ["--users", str(self.users), "--tls-certificate", str(self.server)]

    def greeting(self, bootstrap_servers: str) -> list[str]:
        return [
            f"Clients log in over TLS. The user is {ADMIN}, the password is in {self._password_file}.",
            f"  confluent-kafka  settings in {self.librdkafka}",
            f"  kcat             kcat -F {self.librdkafka} -L",
            f"  Java             settings in {self.java}",
            f"  aiokafka         settings in {self.aiokafka}, and ssl_context=ssl.create_default_context(cafile='{self.authority}')",
            f"  ottla            ottla topic list -b {bootstrap_servers} --command-config {self.java}",
            "Add users with `ottla user add NAME`, and rights with `ottla acl allow User:NAME topic NAME read`.",
        ]


def refuse_open_directory(file: Path, folder: SecureFolder) -> None:
    """Raises StartupError for a directory that an earlier start made without logins."""
    if file.exists() and not folder.exists:
        raise StartupError(
            f"{file} is of a log without logins, and --secure applies to a new directory only: choose another --dir"
        )


def advertised_name(host: str, wildcards: tuple[str, ...]) -> str:
    return socket.gethostname() if host in wildcards else host
