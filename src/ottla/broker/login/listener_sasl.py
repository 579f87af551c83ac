"""The state of one SASL listener: its mechanisms, their users, how long a session lasts. Made again when settings
change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.env.config.broker.config import BrokerConfig
from ottla.env.logging import get_logger
from ottla.env.seams import Clock, RandomSource
from ottla.security import sasl
from ottla.security.jaas import JaasEntry, JaasError, parse_jaas
from ottla.security.principals import split_principal
from ottla.security.sasl import SaslServer

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage
    from ottla.security.jwks import FileKeys, UrlKeys
    from ottla.security.oauthbearer import BearerToken, TokenRules
    from ottla.security.scram import ScramCredential, ScramUser

log = get_logger(__name__)

_NONCE_BYTES = 24
_TOKEN_CREDENTIALS = 10_000
UNSECURED_SETTING = "ottla.sasl.oauthbearer.unsecured.enable"


class SaslConfigError(ValueError):
    """The SASL settings of a listener cannot be used; the message holds no secret."""


class ListenerSasl:
    """`image` gives the committed metadata: SCRAM users and delegation tokens are looked up there at each login."""

    def __init__(
        self,
        listener: str,
        config: BrokerConfig,
        clock: Clock,
        random: RandomSource,
        image: Callable[[], MetadataImage],
    ) -> None:
        self.listener = listener
        self._clock = clock
        self._random = random
        self._image = image
        own = config.for_listener(listener)
        self.enabled = tuple(own.sasl_enabled_mechanisms)
        self.failure_delay_ms = config.connection_failed_authentication_delay_ms
        self.max_reauth_ms = {
            name: config.mechanism_value(listener, name, "connections.max.reauth.ms") for name in self.enabled
        }
        self._secret_key = config.delegation_token_secret_key
        self._token_credentials: dict[tuple[str, str], ScramCredential] = {}
        self.keys: FileKeys | UrlKeys | None = None
        self.keys_refresh_ms = own.sasl_oauthbearer_jwks_endpoint_refresh_ms
        self._makers: dict[str, Callable[[], SaslServer]] = {}
        for mechanism in self.enabled:
            self._makers[mechanism] = self._maker(mechanism, config)

    def new_server(self, mechanism: str) -> SaslServer:
        return self._makers[mechanism]()

    def session_lifetime_ms(self, mechanism: str, expires_at_ms: int | None) -> int:
        """What is left until the client must log in again; 0 when it need not (KIP-368)."""
        limit = self.max_reauth_ms.get(mechanism) or 0
        if expires_at_ms is None:
            return max(limit, 0)
        left = max(expires_at_ms - self._clock.time_ms(), 0)
        return min(left, limit) if limit > 0 else left

    # The mechanisms

    def _maker(self, mechanism: str, config: BrokerConfig) -> Callable[[], SaslServer]:
        if mechanism not in sasl.MECHANISMS:
            raise SaslConfigError(
                f"sasl.enabled.mechanisms of listener {self.listener}: {mechanism} is not supported here; "
                f"known are {', '.join(sasl.MECHANISMS)}"
            )
        entry = self._jaas(mechanism, config)
        if mechanism == sasl.PLAIN:
            from ottla.security.plain import PlainServer, users_of

            return partial(PlainServer, users_of(entry.options))
        if mechanism == sasl.OAUTHBEARER:
            return self._oauthbearer(entry, config)
        from ottla.security.scram import ScramServer

        return partial(ScramServer, mechanism, partial(self._scram_user, mechanism), self._nonce)

    def _jaas(self, mechanism: str, config: BrokerConfig) -> JaasEntry:
        text = config.mechanism_value(self.listener, mechanism, "sasl.jaas.config")
        if text is None:
            if mechanism in sasl.SCRAM_MECHANISMS:
                return JaasEntry("", {})  # the users are in the metadata log; Kafka wants an entry all the same
            name = f"listener.name.{self.listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
            raise SaslConfigError(f"{name} is not set: {mechanism} would have no users")
        try:
            return parse_jaas(text)
        except JaasError as error:
            raise SaslConfigError(f"sasl.jaas.config of {self.listener}/{mechanism}: {error}") from None

    def _nonce(self) -> str:
        return self._random.token_bytes(_NONCE_BYTES).hex()

    def _scram_user(self, mechanism: str, name: str, by_token: bool) -> ScramUser | None:  # noqa: FBT001 - as SCRAM calls it
        from ottla.security.scram import CODES, ScramCredential, ScramUser

        image = self._image()
        if by_token:
            return self._token_user(mechanism, name)
        record = image.scram.get((CODES[mechanism], name))
        if record is None:
            return None
        credential = ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )
        return ScramUser(credential, name)

    def _token_user(self, mechanism: str, token_id: str) -> ScramUser | None:
        """A delegation token as a credential: its id is the name, its HMAC the password (KIP-48)."""
        from ottla.security.scram import ScramUser
        from ottla.security.tokens import token_credential

        token = self._image().delegation_tokens.get(token_id)
        now = self._clock.time_ms()
        if token is None or self._secret_key is None or min(token.max_timestamp, token.expiration_timestamp) < now:
            return None
        key = (mechanism, token_id)
        if key not in self._token_credentials:
            if len(self._token_credentials) >= _TOKEN_CREDENTIALS:
                self._token_credentials.clear()
            self._token_credentials[key] = token_credential(mechanism, self._secret_key, token_id)
        return ScramUser(self._token_credentials[key], split_principal(token.owner)[1], token.expiration_timestamp)

    def _oauthbearer(self, entry: JaasEntry, config: BrokerConfig) -> Callable[[], SaslServer]:
        from ottla.security.jwks import JwksError, open_keys
        from ottla.security.oauthbearer import TokenRules

        own = config.for_listener(self.listener)
        url = own.sasl_oauthbearer_jwks_endpoint_url
        if own.ottla_sasl_oauthbearer_unsecured_enable:
            return self._unsecured(entry, own)
        if url is None:
            raise SaslConfigError(
                "sasl.oauthbearer.jwks.endpoint.url is not set: no token could be checked. For development only, "
                f"{UNSECURED_SETTING}=true accepts tokens without a signature, as Kafka does by default"
            )
        try:
            self.keys = open_keys(url, config.ottla_sasl_oauthbearer_allowed_urls)
        except JwksError as error:
            raise SaslConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from error
        rules = TokenRules(
            keys=self.keys,
            issuer=own.sasl_oauthbearer_expected_issuer,
            audience=tuple(own.sasl_oauthbearer_expected_audience),
            clock_skew_ms=own.sasl_oauthbearer_clock_skew_seconds * 1000,
            subject_claim=own.sasl_oauthbearer_sub_claim_name,
        )
        return self._token_server(rules)

    def _unsecured(self, entry: JaasEntry, own: BrokerConfig) -> Callable[[], SaslServer]:
        """Kafka's validator for development, with its options in the JAAS entry."""
        from ottla.security.oauthbearer import TokenRules

        if own.sasl_oauthbearer_jwks_endpoint_url is not None:
            raise SaslConfigError(f"{UNSECURED_SETTING} and sasl.oauthbearer.jwks.endpoint.url cannot be set together")
        skew = _option(entry, "AllowableClockSkewMs", "0")
        if not skew.isascii() or not skew.isdigit():
            raise SaslConfigError(f"unsecuredValidatorAllowableClockSkewMs={skew}: not a number of milliseconds")
        log.warning(
            "tokens.not_verified", listener=self.listener, note="any client can name itself", setting=UNSECURED_SETTING
        )
        rules = TokenRules(
            keys=None,
            issuer=own.sasl_oauthbearer_expected_issuer,
            audience=tuple(own.sasl_oauthbearer_expected_audience),
            clock_skew_ms=int(skew),
            subject_claim=_option(entry, "PrincipalClaimName", "sub"),
            scope_claim=_option(entry, "ScopeClaimName", "scope"),
            required_scope=tuple(_option(entry, "RequiredScope", "").split()),
            unsecured=True,
        )
        return self._token_server(rules)

    def _token_server(self, rules: TokenRules) -> Callable[[], SaslServer]:
        from ottla.security.oauthbearer import OAuthBearerServer, validate_token

        def validate(token: str) -> BearerToken:
            return validate_token(token, rules, self._clock.time_ms())

        return partial(OAuthBearerServer, validate, self._on_token_refused)

    def _on_token_refused(self, reason: str) -> None:
        log.warning("token.refused", listener=self.listener, reason=reason)


def _option(entry: JaasEntry, name: str, default: str) -> str:
    """An option of Kafka's unsecured validator; a blank one counts as absent."""
    return entry.options.get(f"unsecuredValidator{name}", "").strip() or default
