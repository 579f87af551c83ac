"""`WebAccess` with access rules: users of the file and of tokens get the rights of their grants.

Without `[[grant]]` sections this is `WebAccess`. With them, a user whom no grant names is refused like an unknown user.
"""

from __future__ import annotations

from ottla.security.access_rules import AccessRules, load_access_rules
from ottla.security.web import WebAccess
from ottla.security.web_users import WebAccessError, WebUser


class RuledAccess(WebAccess):
    rules = AccessRules()

    oidc = False
    """Whether people may log in at the provider of the rules: on the console, not on the registry."""

    @property
    def open(self) -> bool:
        return super().open and not self.oidc

    async def user(self, authorization: str | None, address: str = "") -> WebUser | None:
        return self.rules.user(await super().user(authorization, address))

    def with_rules(self, path: str | None, *, console: bool = False) -> RuledAccess:
        """Raises WebAccessError for grants on a server without a login: no grant could ever match."""
        if path:
            self.rules = load_access_rules(path)
            self.oidc = console and self.rules.oidc is not None
            if self.rules.grants and self.open:
                raise WebAccessError(f"{path} has grants, but the server requires no login: add --users or --jwks-url")
        return self
