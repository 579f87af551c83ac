"""What goes wrong, in Confluent's codes and words. Each becomes a response in one place (`http/answers.py`)."""

from __future__ import annotations


class RegistryError(Exception):
    """`code` is the registry's own; its first three digits are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


def not_found() -> RegistryError:
    return RegistryError(404, "HTTP 404 Not Found")


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(what: int | str | None = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if what is None else f"Schema {what} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40406, f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def compatibility_not_configured(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_configured(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def association_not_found(resource: str) -> RegistryError:
    return RegistryError(40410, f"Association for '{resource}' not found.")


def incompatible(subject: str, details: list[str]) -> RegistryError:
    shown = ", ".join(details)
    return RegistryError(
        409,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: [{shown}]',
    )


def invalid_schema(details: str, schema_type: str = "AVRO") -> RegistryError:
    return RegistryError(42201, f"Invalid schema of type {schema_type}, details: {details}")


def invalid_version(version: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def invalid_compatibility() -> RegistryError:
    return RegistryError(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_mode() -> RegistryError:
    return RegistryError(42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT.")


def not_permitted(message: str) -> RegistryError:
    return RegistryError(42205, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(42206, f"One or more references exist to the schema {key}.")


def id_does_not_match() -> RegistryError:
    return RegistryError(42207, "The ID of an imported schema does not match the existing ID")


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid.")


def schema_too_large(size: int, limit: int) -> RegistryError:
    return RegistryError(42209, f"Schema is too large: {size} bytes, the limit is {limit} (schema.max.bytes)")


def store_error(message: str) -> RegistryError:
    return RegistryError(50001, message)


def operation_timeout(message: str) -> RegistryError:
    return RegistryError(50002, message)


def forwarding_failed(message: str) -> RegistryError:
    return RegistryError(50003, message)


def unknown_leader() -> RegistryError:
    return RegistryError(50004, "Leader not known")
