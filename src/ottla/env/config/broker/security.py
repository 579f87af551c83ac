"""Authorization, delegation tokens and TLS."""

from __future__ import annotations

from ottla.env.config.checks import at_least, java_class, list_of, one_of
from ottla.env.config.effects import NO_JAVA, TLS_VERSIONS
from ottla.env.config.settings import BOOLEAN, CLASS, LIST, LONG, LOW, PASSWORD, PER_BROKER, STRING, Settings, setting


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class SecuritySettings(Settings):
    __slots__ = ()

    authorizer_class_name: str = setting(
        STRING, "", java_class("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        "StandardAuthorizer switches ACLs on; empty allows everyone.", importance=LOW,
    )
    principal_builder_class: str = setting(
        CLASS, "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        java_class("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"),
        "Class that makes a principal of a connection.", mode=PER_BROKER, effect=NO_JAVA,
    )
    security_providers: str | None = setting(
        STRING, None, None, "Java security providers.", importance=LOW, effect=NO_JAVA
    )
    connections_max_reauth_ms: int = setting(
        LONG, 0, None, "A SASL session must log in again within this time; 0 never."
    )
    delegation_token_secret_key: str | None = setting(
        PASSWORD, None, None, "Secret that signs delegation tokens; the same on every node."
    )
    delegation_token_max_lifetime_ms: int = setting(
        LONG, 604_800_000, at_least(1), "Longest life of a delegation token."
    )
    delegation_token_expiry_time_ms: int = setting(
        LONG, 86_400_000, at_least(1), "A delegation token must be renewed within this time."
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        LONG, 3_600_000, at_least(1), "How often expired delegation tokens are removed.", importance=LOW
    )
    ssl_client_auth: str = setting(
        STRING, "none", one_of("required", "requested", "none"),
        "Whether clients must, may or need not show a certificate.", mode=PER_BROKER,
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        LIST, ("TLSv1.2", "TLSv1.3"), list_of(), "TLS versions that are accepted.", mode=PER_BROKER
    )
    ssl_protocol: str = setting(STRING, "TLSv1.3", None, "Newest TLS version to offer.", mode=PER_BROKER, effect=TLS_VERSIONS)
    ssl_cipher_suites: tuple[str, ...] = setting(
        LIST, (), list_of(), "Cipher suites that are accepted; empty uses the library's suites.", mode=PER_BROKER
    )
    ssl_keystore_type: str = setting(STRING, "JKS", None, "Format of the key store: JKS, PKCS12 or PEM.", mode=PER_BROKER)
    ssl_keystore_location: str | None = setting(
        STRING, None, None, "File with this node's key and certificates.", mode=PER_BROKER
    )
    ssl_keystore_password: str | None = setting(PASSWORD, None, None, "Password of the key store.", mode=PER_BROKER)
    ssl_keystore_key: str | None = setting(PASSWORD, None, None, "Private key as PEM text.", mode=PER_BROKER)
    ssl_keystore_certificate_chain: str | None = setting(
        PASSWORD, None, None, "Certificates as PEM text.", mode=PER_BROKER
    )
    ssl_key_password: str | None = setting(PASSWORD, None, None, "Password of the private key.", mode=PER_BROKER)
    ssl_truststore_type: str = setting(STRING, "JKS", None, "Format of the trust store: JKS, PKCS12 or PEM.", mode=PER_BROKER)
    ssl_truststore_location: str | None = setting(
        STRING, None, None, "File with the trusted certificates.", mode=PER_BROKER
    )
    ssl_truststore_password: str | None = setting(PASSWORD, None, None, "Password of the trust store.", mode=PER_BROKER)
    ssl_truststore_certificates: str | None = setting(
        PASSWORD, None, None, "Trusted certificates as PEM text.", mode=PER_BROKER
    )
    ssl_endpoint_identification_algorithm: str = setting(
        STRING, "https", None,
        "Check of a server's host name; empty disables the check.", importance=LOW, mode=PER_BROKER,
    )
    ssl_principal_mapping_rules: str = setting(
        STRING, "DEFAULT", None, "Rules that turn a certificate's name into a principal.", importance=LOW
    )
    ssl_allow_dn_changes: bool = setting(
        BOOLEAN, False, None, "Whether a reloaded certificate may have a different subject.", importance=LOW
    )
    ssl_allow_san_changes: bool = setting(
        BOOLEAN, False, None, "Whether a reloaded certificate may have different alternative names.", importance=LOW
    )
    ssl_engine_factory_class: str | None = setting(
        CLASS, None, java_class(), "Class that makes TLS engines.", importance=LOW, mode=PER_BROKER, effect=NO_JAVA
    )
    ssl_keymanager_algorithm: str = setting(
        STRING, "SunX509", None, "Java's key manager.", mode=PER_BROKER, effect=NO_JAVA
    )
    ssl_provider: str | None = setting(STRING, None, None, "Java's TLS provider.", mode=PER_BROKER, effect=NO_JAVA)
    ssl_secure_random_implementation: str | None = setting(
        STRING, None, None, "Java's random source.", importance=LOW, mode=PER_BROKER, effect=NO_JAVA
    )
    ssl_trustmanager_algorithm: str = setting(
        STRING, "PKIX", None, "Java's trust manager.", mode=PER_BROKER, effect=NO_JAVA
    )
# fmt: on
