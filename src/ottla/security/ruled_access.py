"""`WebAccess` with access rules: users of the file and of tokens get the rights of their grants.

Without `[[grant]]` sections this is `WebAccess`. With them, a user whom no grant names is refused like a stranger.
"""

from __future__ import annotations

from ottla.security.access_rules import AccessRules, load_access_rules
from ottla.security.web import WebAccess
from ottla.security.web_users import WebAccessError, WebUser


class RuledAccess(WebAccess):
    rules = AccessRules()

    @property
    def open(self) -> bool:
        return super().open and self.rules.oidc is None

    async def user(self, authorization: str | None) -> WebUser | None:
        return self.rules.user(await super().user(authorization))

    def with_rules(self, path: str | None) -> RuledAccess:
        """Raises WebAccessError for grants on a server that lets everybody in: nobody would be named by one."""
        if path:
            self.rules = load_access_rules(path)
            if self.rules.grants and self.open:
                raise WebAccessError(
                    f"{path} has grants, and everybody is let in: add --users, --jwks-url or an [oidc] section"
                )
        return self
