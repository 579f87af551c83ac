"""What can go wrong between a tool and a cluster, with the words and the class names that Kafka's Java client uses.

An answer's error code is `ottla.model.errors.KafkaError`; what never became an answer is a ClientError.
"""

from __future__ import annotations

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.user_error import UserError

_JAVA_NAMES = {
    "UNKNOWN_SERVER_ERROR": "UnknownServerException",
    "TOPIC_ALREADY_EXISTS": "TopicExistsException",
    "INVALID_TOPIC_EXCEPTION": "InvalidTopicException",
    "INVALID_CONFIG": "InvalidConfigurationException",
    "REQUEST_TIMED_OUT": "TimeoutException",
    "NON_EMPTY_GROUP": "GroupNotEmptyException",
    "TOPIC_AUTHORIZATION_FAILED": "TopicAuthorizationException",
    "GROUP_AUTHORIZATION_FAILED": "GroupAuthorizationException",
    "CLUSTER_AUTHORIZATION_FAILED": "ClusterAuthorizationException",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "TransactionalIdAuthorizationException",
    "SASL_AUTHENTICATION_FAILED": "SaslAuthenticationException",
    "DELEGATION_TOKEN_AUTH_DISABLED": "DelegationTokenDisabledException",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "UnsupportedByAuthenticationException",
    "KAFKA_STORAGE_ERROR": "KafkaStorageException",
    "CORRUPT_MESSAGE": "CorruptRecordException",
    "MESSAGE_TOO_LARGE": "RecordTooLargeException",
    "BROKER_ID_NOT_REGISTERED": "BrokerIdNotRegisteredException",
    "TRANSACTIONAL_ID_NOT_FOUND": "TransactionalIdNotFoundException",
}


class ClientError(UserError):
    """A call that got no answer; `java_name` is the class that Kafka's tools print."""

    java_name = "org.apache.kafka.common.KafkaException"


class BadSettings(ClientError):
    """The client cannot even be made: a wrong address, an unknown mechanism, an unreadable certificate."""

    java_name = "org.apache.kafka.common.config.ConfigException"


class ConnectionFailed(ClientError):
    """A broker did not accept or keep the connection; a different broker may."""

    java_name = "org.apache.kafka.common.errors.DisconnectException"


class CallTimeout(ClientError):
    java_name = "org.apache.kafka.common.errors.TimeoutException"


class AuthenticationFailed(ClientError):
    """TLS or SASL refused us: no retry makes that better."""

    java_name = "org.apache.kafka.common.errors.SaslAuthenticationException"


class UnsupportedVersion(ClientError):
    java_name = "org.apache.kafka.common.errors.UnsupportedVersionException"


class RegistryRefused(UserError):
    """The registry returned an error: Confluent's code, its message, and the HTTP status."""

    def __init__(self, code: int, message: str, status: int) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.status = status


class RegistryUnreachable(UserError):
    """No response from the registry: whether a change was made is not known."""


def java_name(error: Exception) -> str:
    """The Java class that stands in Kafka's own messages for this error."""
    if isinstance(error, ClientError):
        return error.java_name
    if isinstance(error, KafkaError):
        return "org.apache.kafka.common.errors." + _java_class(error.code)
    return "java.lang.IllegalArgumentException"


def _java_class(code: ErrorCode) -> str:
    return _JAVA_NAMES.get(code.name) or "".join(word.capitalize() for word in code.name.split("_")) + "Exception"


def check(code: int, message: str | None = None) -> None:
    """Raise KafkaError for an answer's error code, unless it is NONE."""
    if code:
        raise error_of(code, message)


def error_of(code: int, message: str | None = None) -> KafkaError:
    return KafkaError(ErrorCode(code), message)
