"""SASL: mechanisms, logins, OAUTHBEARER tokens."""

from __future__ import annotations

from ottla.env.config.checks import between, java_class, list_of, one_of_any_case
from ottla.env.config.effects import NO_JAVA, NO_JWKS_BACKOFF, NO_KERBEROS, NO_LOGIN, NO_SCOPES
from ottla.env.config.settings import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
    Settings,
    setting,
)


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class SaslSettings(Settings):
    __slots__ = ()

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        LIST, ("GSSAPI",), list_of(), "SASL mechanisms that clients may use.", mode=PER_BROKER
    )
    sasl_jaas_config: str | None = setting(
        PASSWORD, None, None, "Login module and credentials, per listener and mechanism by prefix.", mode=PER_BROKER
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        STRING, "GSSAPI", None, "Mechanism among brokers.", mode=PER_BROKER
    )
    sasl_mechanism_controller_protocol: str = setting(
        STRING, "GSSAPI", None, "Mechanism towards controllers.", importance=HIGH
    )
    sasl_server_max_receive_size: int = setting(INT, 524_288, None, "Largest SASL message.")
    sasl_client_callback_handler_class: str | None = setting(
        CLASS, None, None, "Class that supplies credentials to this node's own logins.", effect=NO_JAVA
    )
    sasl_login_callback_handler_class: str | None = setting(
        CLASS, None, None, "Class that supplies credentials at login.", effect=NO_JAVA
    )
    sasl_login_class: str | None = setting(CLASS, None, None, "Class that performs a login.", effect=NO_JAVA)
    sasl_server_callback_handler_class: str | None = setting(
        CLASS, None, java_class(), "Class that checks a client's credentials.", effect=NO_JAVA
    )
    sasl_login_connect_timeout_ms: int | None = setting(
        INT, None, None, "Wait for a connection to the token endpoint.", importance=LOW, effect=NO_LOGIN,
    )
    sasl_login_read_timeout_ms: int | None = setting(
        INT, None, None, "Wait for an answer of the token endpoint.", importance=LOW, effect=NO_LOGIN,
    )
    sasl_login_retry_backoff_ms: int = setting(
        LONG, 100, None, "Pause before the token endpoint is asked again.", importance=LOW, effect=NO_LOGIN,
    )
    sasl_login_retry_backoff_max_ms: int = setting(
        LONG, 10_000, None, "Longest pause before the token endpoint is asked again.", importance=LOW, effect=NO_LOGIN,
    )
    sasl_login_refresh_buffer_seconds: int = setting(
        SHORT, 300, None, "Time before expiry that a token refresh leaves.", mode=PER_BROKER, effect=NO_LOGIN,
    )
    sasl_login_refresh_min_period_seconds: int = setting(
        SHORT, 60, None, "Shortest time between two token refreshes.", mode=PER_BROKER, effect=NO_LOGIN,
    )
    sasl_login_refresh_window_factor: float = setting(
        DOUBLE, 0.8, None, "Share of a token's life after which it is refreshed.", mode=PER_BROKER, effect=NO_LOGIN,
    )
    sasl_login_refresh_window_jitter: float = setting(
        DOUBLE, 0.05, None, "Random share added to the refresh time.", mode=PER_BROKER, effect=NO_LOGIN,
    )
    sasl_kerberos_kinit_cmd: str = setting(
        STRING, "/usr/bin/kinit", None, "Path of kinit.", mode=PER_BROKER, effect=NO_KERBEROS
    )
    sasl_kerberos_min_time_before_relogin: int = setting(
        LONG, 60_000, None, "Shortest time between two Kerberos logins.", mode=PER_BROKER, effect=NO_KERBEROS
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = setting(
        LIST, ("DEFAULT",), list_of(),
        "Rules that turn a Kerberos principal into a short name.", mode=PER_BROKER, effect=NO_KERBEROS,
    )
    sasl_kerberos_service_name: str | None = setting(
        STRING, None, None, "Kerberos service name.", mode=PER_BROKER, effect=NO_KERBEROS
    )
    sasl_kerberos_ticket_renew_jitter: float = setting(
        DOUBLE, 0.05, None, "Random share added to the ticket renewal time.", mode=PER_BROKER, effect=NO_KERBEROS
    )
    sasl_kerberos_ticket_renew_window_factor: float = setting(
        DOUBLE, 0.8, None, "Share of a ticket's life after which it is renewed.", mode=PER_BROKER, effect=NO_KERBEROS
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        STRING, None, None, "Where the signing keys of tokens are found."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        LONG, 3_600_000, None, "How often the signing keys are fetched.", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        LONG, 100, None, "Pause before the keys are asked for again.", importance=LOW, effect=NO_JWKS_BACKOFF,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        LONG, 10_000, None, "Longest pause before the keys are asked for again.", importance=LOW, effect=NO_JWKS_BACKOFF,
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        INT, 30, None, "How far clocks may differ when a token is checked.", importance=LOW
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        LIST, (), list_of(), "A token must be for one of these audiences.", importance=HIGH
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        STRING, None, None, "A token must come from this issuer.", importance=HIGH
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        STRING, "scope", None, "Claim that holds the scopes.", importance=LOW, effect=NO_SCOPES,
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        STRING, "sub", None, "Claim that holds the principal's name.", importance=LOW
    )
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        STRING, None, None, "Where this node gets its own tokens.", effect=NO_LOGIN,
    )
    sasl_oauthbearer_scope: str | None = setting(STRING, None, None, "Scope that this node asks for.", effect=NO_LOGIN)
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(
        STRING, None, None, "Client id of this node's own logins.", effect=NO_LOGIN,
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = setting(
        PASSWORD, None, None, "Client secret of this node's own logins.", effect=NO_LOGIN,
    )
    sasl_oauthbearer_jwt_retriever_class: str = setting(
        CLASS, "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", None,
        "Class that fetches a token.", effect=NO_JAVA,
    )
    sasl_oauthbearer_jwt_validator_class: str = setting(
        CLASS, "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", None,
        "Class that checks a token.", effect=NO_JAVA,
    )
    sasl_oauthbearer_assertion_algorithm: str = setting(
        STRING, "RS256", one_of_any_case("ES256", "RS256"), "Signature algorithm of an assertion.", effect=NO_LOGIN,
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = setting(STRING, None, None, "Audience claim of an assertion.", effect=NO_LOGIN)
    sasl_oauthbearer_assertion_claim_exp_seconds: int = setting(
        INT, 300, between(0, 86_400), "Life of an assertion.", importance=LOW, effect=NO_LOGIN,
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = setting(STRING, None, None, "Issuer claim of an assertion.", effect=NO_LOGIN)
    sasl_oauthbearer_assertion_claim_jti_include: bool = setting(
        BOOLEAN, False, None, "Whether an assertion carries a unique id.", effect=NO_LOGIN,
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = setting(
        INT, 60, between(0, 3600), "How far back an assertion is already valid.", importance=LOW, effect=NO_LOGIN,
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = setting(STRING, None, None, "Subject claim of an assertion.", effect=NO_LOGIN)
    sasl_oauthbearer_assertion_file: str | None = setting(STRING, None, None, "File with a ready-made assertion.", effect=NO_LOGIN)
    sasl_oauthbearer_assertion_private_key_file: str | None = setting(
        STRING, None, None, "File with the key that signs assertions.", effect=NO_LOGIN,
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = setting(
        PASSWORD, None, None, "Password of that key.", effect=NO_LOGIN,
    )
    sasl_oauthbearer_assertion_template_file: str | None = setting(
        STRING, None, None, "File with headers and claims to start from.", effect=NO_LOGIN,
    )
# fmt: on
