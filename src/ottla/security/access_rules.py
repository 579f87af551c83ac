"""The file behind `--access-rules`: who logs in by OIDC, who has which role on what, what is masked. TOML, read once.

    act_as_user = true            # the console asks the cluster as the person who is logged in

    [oidc]
    issuer = "https://id.example.org"
    client_id = "ottla-console"
    client_secret_file = "/run/secrets/oidc"

    [[grant]]
    groups = ["data-team"]
    role = "operator"
    topics = ["orders.*"]
    subjects = ["orders.*"]

    [[mask]]
    topics = ["payments*"]
    field = "value.card.number"
    mode = "keep-last-4"
    exempt = ["role:admin"]

Every key is checked: a misspelt one would protect nothing. `grants.py` and `masking.py` give the sections their meaning.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ottla.security.grants import CONSUMER_GROUP, RANK, SUBJECT, TOPIC, Grant, GrantedUser, granted
from ottla.security.hosts import is_loopback
from ottla.security.masking import MODES, NO_MASKS, MaskRule, Masks, parse_exempt, parse_field
from ottla.security.web_users import WebAccessError, WebUser

_MIN_SECRET_BYTES = 16
_RESOURCES = {"topics": TOPIC, "subjects": SUBJECT, "consumer_groups": CONSUMER_GROUP}


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcRules:
    issuer: str
    client_id: str
    client_secret: str | None = None
    user_claim: str = "sub"
    groups_claim: str = "groups"
    scopes: tuple[str, ...] = ("openid",)
    public_url: str = ""
    """Where browsers reach the console; from the request's Host when empty."""
    ca_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    oidc: OidcRules | None = None
    grants: tuple[Grant, ...] = ()
    masks: Masks = NO_MASKS
    act_as_user: bool = False

    def user(self, web_user: WebUser | None) -> WebUser | None:
        """A user of the users file or a token, with the rights of the grants where there are any."""
        if web_user is None or not self.grants or isinstance(web_user, GrantedUser):
            return web_user
        return granted(self.grants, web_user.name, web_user.groups, web_user.role)


def load_access_rules(path: str) -> AccessRules:
    """WebAccessError names the file, the section and the key that cannot be used."""
    try:
        tree = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise WebAccessError(f"the access rules {path} cannot be read: {error}") from None
    try:
        return _rules(tree, Path(path).parent)
    except (ValueError, OSError) as error:
        raise WebAccessError(f"the access rules {path}: {error}") from None


def _rules(tree: Mapping[str, Any], folder: Path) -> AccessRules:
    _refuse_unknown_keys("the file", tree, ("act_as_user", "mask_hash_key_file", "oidc", "grant", "mask"))
    acting = tree.get("act_as_user", False)
    if not isinstance(acting, bool):
        raise WebAccessError("act_as_user is true or false")
    grants = tuple(_grant(f"grant {n}", section) for n, section in enumerate(_sections(tree, "grant"), 1))
    oidc = _oidc(tree["oidc"], folder) if "oidc" in tree else None
    if oidc is not None and not grants:
        raise ValueError("[oidc] without a [[grant]] gives no user a role: write a [[grant]] with groups and role")
    return AccessRules(oidc=oidc, grants=grants, masks=_masks(tree, folder), act_as_user=acting)


def _sections(tree: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    sections = tree.get(name, [])
    if not isinstance(sections, list) or not all(isinstance(section, dict) for section in sections):
        raise ValueError(f"write [[{name}]], with two brackets")
    return sections


def _grant(where: str, tree: Mapping[str, Any]) -> Grant:
    _refuse_unknown_keys(where, tree, ("users", "groups", "roles", "role", *_RESOURCES))
    role = tree.get("role")
    roles = _words(where, tree, "roles")
    for role_name in (role, *roles):
        if not isinstance(role_name, str) or role_name not in RANK:
            raise ValueError(f"{where}: a role is one of viewer, operator, admin (read, write), not {role_name!r}")
    users, groups = _words(where, tree, "users"), _words(where, tree, "groups")
    if not (users or groups or roles):
        raise ValueError(f"{where} names no user: write users, groups or roles")
    resources = {kind: _words(where, tree, key) for key, kind in _RESOURCES.items() if key in tree}
    return Grant(role=str(role), users=users, groups=groups, roles=roles, resources=resources)


def _masks(tree: Mapping[str, Any], folder: Path) -> Masks:
    rules = tuple(_mask(f"mask {n}", section) for n, section in enumerate(_sections(tree, "mask"), 1))
    secret = b""
    if "mask_hash_key_file" in tree:
        secret = (folder / str(tree["mask_hash_key_file"])).read_bytes().strip()
        if len(secret) < _MIN_SECRET_BYTES:
            raise ValueError(f"mask_hash_key_file needs {_MIN_SECRET_BYTES} bytes or more")
    elif any(rule.mode == "hash" for rule in rules):
        raise ValueError("mode hash needs mask_hash_key_file: without a key a hash can be guessed")
    return Masks(rules, secret)


def _mask(where: str, tree: Mapping[str, Any]) -> MaskRule:
    _refuse_unknown_keys(where, tree, ("topics", "field", "mode", "exempt"))
    topics, mode = _words(where, tree, "topics"), tree.get("mode", "hide")
    if not topics:
        raise ValueError(f"{where}: topics is empty")
    if mode not in MODES:
        raise ValueError(f"{where}: mode is one of {', '.join(MODES)}, not {mode!r}")
    try:
        part, path = parse_field(str(tree.get("field", "")))
        exempt = parse_exempt(_words(where, tree, "exempt"))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return MaskRule(topics=topics, part=part, path=path, mode=mode, exempt=exempt)


def _oidc(tree: Any, folder: Path) -> OidcRules:
    if not isinstance(tree, dict):
        raise WebAccessError("write [oidc], with one bracket")
    names = (
        "issuer",
        "client_id",
        "client_secret_file",
        "user_claim",
        "groups_claim",
        "scopes",
        "public_url",
        "ca_file",
    )
    _refuse_unknown_keys("[oidc]", tree, names)
    for name in ("issuer", "client_id"):
        if not tree.get(name):
            raise ValueError(f"[oidc] needs {name}")
    for name in set(names) - {"scopes"}:
        if not isinstance(tree.get(name, ""), str):
            raise WebAccessError(f"[oidc] {name} is text")
    check_address(str(tree["issuer"]), "[oidc] issuer")
    secret = None
    if "client_secret_file" in tree:
        secret = (folder / tree["client_secret_file"]).read_text("utf-8").strip()
    scopes = _words("[oidc]", tree, "scopes") or ("openid",)
    return OidcRules(
        issuer=str(tree["issuer"]),
        client_id=str(tree["client_id"]),
        client_secret=secret,
        user_claim=str(tree.get("user_claim", "sub")),
        groups_claim=str(tree.get("groups_claim", "groups")),
        scopes=scopes if "openid" in scopes else ("openid", *scopes),
        public_url=str(tree.get("public_url", "")).rstrip("/"),
        ca_file=str(folder / tree["ca_file"]) if "ca_file" in tree else None,
    )


def check_address(url: str, what: str) -> None:
    """HTTPS, or HTTP to this machine: a login over plain HTTP can be read and changed on its way."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise ValueError(f"{what} must begin with https:// (http:// for this machine only), not {url!r}")


def _words(where: str, tree: Mapping[str, Any], name: str) -> tuple[str, ...]:
    names = tree.get(name, [])
    if not isinstance(names, list) or not all(isinstance(name_text, str) and name_text for name_text in names):
        raise ValueError(f'{where}: {name} is a list of names, such as ["orders.*"]')
    return tuple(names)


def _refuse_unknown_keys(where: str, tree: Mapping[str, Any], names: Iterable[str]) -> None:
    names = tuple(names)
    for name in tree:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            raise ValueError(f"{where}: unknown key {name!r}" + (f"; do you mean {close[0]}?" if close else ""))
