"""`ottla doctor --security`: what of a node is open, and the setting or command that closes it.

The settings come from a server.properties (then the files that it names are looked at too) or from each broker of a cluster
(DescribeConfigs, which hides passwords). HTTP servers are asked without a login. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from ottla.cli.doctor.findings import Finding, error, ok, warning
from ottla.env.config.listeners import SECURITY_PROTOCOLS
from ottla.security.hosts import is_loopback

_ADDRESS = "name a URL that clients use, such as http://HOST:8081/subjects, with a path that exists"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_OLD_TLS = {"TLSv1", "TLSv1.1", "SSLv3"}
_KEY_SOURCES = ("file", "env", "command", "url")
_USERS_FILE = "ottla.http.users.file"
_IDENTIFICATION = "ssl.endpoint.identification.algorithm"
Values = Mapping[str, str]


class _Listener(NamedTuple):
    name: str
    protocol: str
    host: str

    @property
    def remote(self) -> bool:
        return not is_loopback(self.host)

    def setting(self, values: Values, name: str) -> str:
        """The name under which the setting is in force: of this listener, or of all."""
        own = f"listener.name.{self.name.lower()}.{name}"
        return own if values.get(own) else name

    def of(self, values: Values, name: str, default: str = "") -> str:
        return values.get(self.setting(values, name)) or default


def check_settings(values: Values, where: str) -> Iterator[Finding]:
    """`values` under Kafka's names; `where` begins each line ("broker 1", a file's name)."""
    listeners = list(_listeners(values))
    checks = [finding for listener in listeners for finding in _listener(listener, values)]
    checks += _authorizer(values, any(listener.remote for listener in listeners))
    checks += _http(values)
    checks += _at_rest(values)
    yield from (finding._replace(seen=f"{where}: {finding.seen}") for finding in checks)
    if not any(finding.level == "error" for finding in checks):
        yield ok("settings", f"{where}: no listener, ACL or HTTP setting is open")


def _listeners(values: Values) -> Iterator[_Listener]:
    protocols = {name: name for name in SECURITY_PROTOCOLS}
    for pair in values.get("listener.security.protocol.map", "").upper().split(","):
        name, _, protocol = pair.rpartition(":")
        protocols[name.strip()] = protocol.strip()
    for text in (values.get("listeners") or "PLAINTEXT://:9092").split(","):
        name, _, address = text.strip().partition("://")
        # Kafka's default for a controller's listener, which the map need not name.
        yield _Listener(name, protocols.get(name.upper(), "PLAINTEXT"), address.rpartition(":")[0])


def _listener(listener: _Listener, values: Values) -> Iterator[Finding]:
    place = f"listener {listener.name} ({listener.protocol}) on {listener.host or 'every address'}"
    close = (
        f"listener.security.protocol.map=...,{listener.name}:SASL_SSL with sasl.enabled.mechanisms "
        "and ssl.keystore.location"
    )
    prefix = f"listener.name.{listener.name.lower()}."
    if listener.protocol == "PLAINTEXT" and listener.remote:
        yield error("open-listener", f"{place} accepts every client as User:ANONYMOUS", close)
    if listener.protocol == "SASL_PLAINTEXT" and listener.remote:
        mechanisms = listener.of(values, "sasl.enabled.mechanisms").upper().replace(" ", "").split(",")
        passwords = not {"PLAIN", "OAUTHBEARER"}.isdisjoint(mechanisms)
        seen = f"{place} sends {'passwords or tokens, and records' if passwords else 'records'} unencrypted"
        yield (error if passwords else warning)("clear-text", seen, close)
    if listener.protocol == "SSL" and listener.of(values, "ssl.client.auth", "none").lower() != "required":
        fix = f"{prefix}ssl.client.auth=required, or SASL_SSL"
        yield warning("anonymous-tls", f"{place} accepts clients without a certificate as User:ANONYMOUS", fix)
    if listener.of(values, "ottla.sasl.oauthbearer.unsecured.enable").lower() == "true" and "SASL" in listener.protocol:
        name = listener.setting(values, "ottla.sasl.oauthbearer.unsecured.enable")
        fix = f"{name}=false and sasl.oauthbearer.jwks.endpoint.url"
        yield error("unsigned-tokens", f"{place} accepts unsigned OAUTHBEARER tokens", fix)
    keys = listener.of(values, "sasl.oauthbearer.jwks.endpoint.url")
    if "SASL" in listener.protocol and keys.startswith("http://") and not is_loopback(urlsplit(keys).hostname or ""):
        fix = f"{listener.setting(values, 'sasl.oauthbearer.jwks.endpoint.url')}=https://..."
        yield error("clear-text", f"{place} fetches the keys of tokens in the clear ({keys})", fix)
    if "SSL" in listener.protocol.removeprefix("SASL_"):
        yield from _tls(listener, values, place, prefix)


def _tls(listener: _Listener, values: Values, place: str, prefix: str) -> Iterator[Finding]:
    level = listener.of(values, "ottla.ssl.security.level", "-1")
    if level in ("0", "1"):
        yield error(
            "weak-tls",
            f"{place} accepts weak certificates (security level {level})",
            f"{prefix}ottla.ssl.security.level=2",
        )
    old = _OLD_TLS & {part.strip() for part in listener.of(values, "ssl.enabled.protocols").split(",")}
    if old:
        fix = f"{listener.setting(values, 'ssl.enabled.protocols')}=TLSv1.2,TLSv1.3"
        yield error("old-tls", f"{place} offers {', '.join(sorted(old))}", fix)
    for name in (f"{prefix}{_IDENTIFICATION}", _IDENTIFICATION):
        if not values.get(name, "https").strip():
            seen = f"{place}: host names in certificates are not compared"
            yield warning("names-not-checked", seen, f"{name}=https")


def _authorizer(values: Values, remote: bool) -> Iterator[Finding]:  # noqa: FBT001 - one fact of the listeners
    if not values.get("authorizer.class.name"):
        severity = error if remote else warning
        fix = f"authorizer.class.name={STANDARD_AUTHORIZER} and super.users=User:NODE;User:ADMIN, then `ottla acl`"
        yield severity("no-acls", "every client may do everything: there is no authorizer", fix)
        return
    users = [user.strip() for user in values.get("super.users", "").split(";") if user.strip()]
    if "User:ANONYMOUS" in users:
        yield error("anonymous-super-user", "super.users has User:ANONYMOUS", "remove User:ANONYMOUS from super.users")
    if len(users) > 5:
        yield warning(
            "many-super-users",
            f"{len(users)} super users: ACLs do not apply to them",
            "grant permissions with `ottla acl` instead",
        )
    if values.get("allow.everyone.if.no.acl.found", "false").lower() == "true":
        fix = "allow.everyone.if.no.acl.found=false, after `ottla acl list` shows a rule for each topic in use"
        yield error("open-by-default", "a topic without ACLs is open to every client", fix)
    if values.get("ottla.audit.enable", "false").lower() != "true":
        yield warning("no-audit", "logins, refusals and changes are not recorded", "ottla.audit.enable=true")


def _http(values: Values) -> Iterator[Finding]:
    listener = values.get("ottla.http.listener", "")
    if listener and not is_loopback(listener.rpartition(":")[0]):
        if not (values.get(_USERS_FILE) or values.get("ottla.http.tls.client.ca")):
            fix = f"{_USERS_FILE}=FILE (`ottla console --hash-password`), or ottla.http.listener=127.0.0.1:9094"
            yield error("open-http", f"ottla.http.listener={listener} shows metrics without a login", fix)
        elif not (values.get("ottla.http.tls.certificate") or values.get("ottla.http.tls.key")):
            yield warning(
                "clear-text",
                f"ottla.http.listener={listener} accepts passwords over an unencrypted connection",
                "ottla.http.tls.certificate=FILE",
            )
    if values.get("ottla.allow.open", "false").lower() == "true":
        yield warning(
            "allowed-open", "ottla.allow.open=true allows servers to start without a login", "ottla.allow.open=false"
        )


def _at_rest(values: Values) -> Iterator[Finding]:
    if not any(values.get(f"ottla.encryption.master.key.{source}") for source in _KEY_SOURCES):
        fix = 'ottla.encryption.master.key.file=FILE with `echo "2026:$(head -c 32 /dev/urandom | base64)"`, or .url of a key server'
        yield warning("not-encrypted", "records, settings and users' credentials are plain on disk", fix)
    elif values.get("ottla.encryption.refuse.plain", "false").lower() != "true":
        fix = "ottla.encryption.refuse.plain=true, when --config FILE lists no plain-files"
        yield warning("plain-accepted", "a whole plain directory in the place of an encrypted one is accepted", fix)
    if values.get("ottla.encryption.master.key.env"):
        fix = "ottla.encryption.master.key.file, .command or .url"
        yield warning("key-in-environment", "the master key is in the environment, which other tools print", fix)


def check_topics(settings: Mapping[str, Values]) -> Iterator[Finding]:
    """`settings` by topic: finds quarantine topics that an older version accepted and this version refuses."""
    from ottla.model.quarantine import MODE_SETTING, QUARANTINE, TOPIC_SETTING, quarantine_topic, target_problem

    for topic, values in settings.items():
        if values.get(MODE_SETTING) != QUARANTINE:
            continue
        target = quarantine_topic(topic, values.get(TOPIC_SETTING, ""))
        problem = target_problem(topic, target)
        if problem is not None:
            fix = f"ottla config set topic {topic} {TOPIC_SETTING}={topic}.quarantine"
            yield error("quarantine", f"topic {topic}: {problem}", fix)


def check_http(url: str, timeout: float) -> Finding:
    """Whether a registry, console, `pipeline serve` or node answers without a login."""
    from urllib.error import HTTPError, URLError
    from urllib.request import ProxyHandler, build_opener

    if not url.lower().startswith(("http://", "https://")):
        return warning("http", f"{url} is not a URL of an HTTP server", _ADDRESS)
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=timeout) as answer:
            status, at = answer.status, answer.geturl()
    except HTTPError as refused:
        refused.close()
        if refused.code in (401, 403):
            return ok("http", f"{url} requires a login (status {refused.code})")
        return warning(
            "http", f"{url} answers {refused.code}, which does not show whether a login is required", _ADDRESS
        )
    except (URLError, OSError, ValueError) as reason:
        return warning("http", f"{url} does not answer: {reason}", _ADDRESS)
    if at.rstrip("/").endswith("/login"):
        return ok("http", f"{url} requires a login")
    fix = (
        "--users FILE for `ottla console`, `ottla registry` and `ottla pipeline serve`; "
        "ottla.http.users.file for a node"
    )
    return error("open-http", f"{url} answers {status} without a login", fix)
