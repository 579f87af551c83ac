"""Named profiles: where a cluster is and how to speak to it, kept in one JSON file of the user's config folder.

Precedence: a flag, then an environment variable (OTTLA_BOOTSTRAP_SERVERS, OTTLA_REGISTRY, OTTLA_PROFILE), then the
profile in use, then 127.0.0.1:9092 as the default. The file is readable by its owner only: it may hold a password.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ottla.client.settings import load_properties

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


@dataclass(slots=True)
class Profile:
    bootstrap: str = DEFAULT_BOOTSTRAP
    registry: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    """Of Kafka's Java clients: security.protocol, sasl.mechanism, sasl.jaas.config, ssl.* ..."""
    name_rule: bool = False
    """Whether new topics must be called <message type>.<dataset>.<data name>.<format>."""


def config_file() -> Path:
    folder = os.environ.get("OTTLA_CONFIG_DIR")
    if folder:
        return Path(folder) / "profiles.json"
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "ottla" / "profiles.json"


@dataclass(slots=True)
class Profiles:
    current: str = ""
    named: dict[str, Profile] = field(default_factory=dict)

    def save(self) -> None:
        path = config_file()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = json.dumps(
            {"current": self.current, "profiles": {n: asdict(p) for n, p in self.named.items()}}, indent=2
        )
        partial = path.with_suffix(".new")
        partial.unlink(missing_ok=True)  # a file that a crash left may be readable by others
        partial.touch(mode=0o600, exist_ok=False)
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(path)


def load_profiles() -> Profiles:
    """No profiles if there is no file. Raises ValueError for a file that holds no profiles."""
    path = config_file()
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        named = {str(name): Profile(**facts) for name, facts in document.get("profiles", {}).items()}
        return Profiles(str(document.get("current", "")), named)
    except FileNotFoundError:
        return Profiles()
    except (ValueError, TypeError, AttributeError) as reason:
        raise ValueError(f"{path} is not a valid file of profiles: {reason}") from reason


def resolve(
    bootstrap: str | None, profile: str | None, registry: str | None, properties: tuple[str, ...], config: str | None
) -> Profile:
    """What a command shall use; ValueError for a profile that does not exist or a property without `=`."""
    profiles = load_profiles()
    name = profile or os.environ.get("OTTLA_PROFILE") or profiles.current
    if name and name not in profiles.named:
        profile_names = ", ".join(sorted(profiles.named)) or "none"
        raise ValueError(f"there is no profile {name!r}; profiles are {profile_names}")
    base = profiles.named.get(name, Profile())
    resolved_profile = Profile(
        bootstrap or os.environ.get("OTTLA_BOOTSTRAP_SERVERS") or base.bootstrap,
        registry or os.environ.get("OTTLA_REGISTRY") or base.registry,
        dict(base.properties),
        base.name_rule,
    )
    if config:
        resolved_profile.properties |= load_properties(config)
    for pair in properties:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"-X {pair}: a property is NAME=VALUE")
        resolved_profile.properties[key] = value
    return resolved_profile
