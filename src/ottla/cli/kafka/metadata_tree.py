"""A metadata image as the tree of names that kafka-metadata-shell walks: folders are dicts, files the text that `cat` prints.

The texts are those of Kafka's own objects, field for field. Built from records only; nothing here reads a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from ottla.cli.kafka.options import KAFKA_VERSION
from ottla.metadata.features import METADATA_VERSION, METADATA_VERSIONS, Range
from ottla.metadata.image import (
    BrokerRegistration,
    ControllerRegistration,
    MetadataImage,
    PartitionRegistration,
    RegisteredEndpoint,
    TopicImage,
)
from ottla.metadata.records import AccessControlEntryRecord, UserScramCredentialRecord
from ottla.model.acls import Operation, PatternType, Permission, ResourceType
from ottla.model.ids import Uuid, uuid_to_str

Tree = dict[str, "Tree | str"]
_RESOURCES = {2: "TOPIC", 4: "BROKER", 16: "CLIENT_METRICS", 32: "GROUP"}
_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_COMMIT = "26b251a451ce941d"
"""Of the Kafka that these tools follow."""


def metadata_tree(image: MetadataImage, offset: int, epoch: int, time_ms: int) -> Tree:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    fraction = f".{moment.microsecond // 1000:03d}".rstrip("0").rstrip(".")
    time = f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z[UTC]"
    scram: dict[str, Tree | str] = {}
    for code, mechanism in _MECHANISMS.items():
        users = {user: _scram(record) for (kind, user), record in image.scram.items() if kind == code}
        scram[mechanism] = dict(users)
    return {
        "image": {
            "acls": {"byId": {uuid_to_str(name): _acl(record) for name, record in image.acls.items()}},
            "clientQuotas": {_entity(entity): _numbers(quotas) for entity, quotas in image.client_quotas.items()},
            "cluster": {
                "brokers": {str(registration.id): _broker(registration) for registration in image.brokers.values()},
                "controllers": {
                    str(registration.id): _controller(registration) for registration in image.controllers.values()
                },
            },
            "configs": {_resource(*key): dict(values) for key, values in image.configs.items()},
            "delegationToken": {name: str(token) for name, token in image.delegation_tokens.items()},
            "features": _features(image),
            "producerIds": {"nextProducerId": str(image.next_producer_id)},
            "provenance": f"offset {offset}, epoch {epoch}, time {time}",
            "scram": scram,
            "topics": {
                "byId": {uuid_to_str(name): _topic(topic) for name, topic in image.topics_by_id.items()},
                "byName": {name: _topic(topic) for name, topic in image.topics_by_name.items()},
            },
        },
        "local": {"commitId": _COMMIT, "version": KAFKA_VERSION},
    }


def _features(image: MetadataImage) -> Tree:
    made: Tree = {f"finalized_{name}": str(level) for name, level in image.features.items() if name != METADATA_VERSION}
    metadata_version = METADATA_VERSIONS.get(image.features.get(METADATA_VERSION, 0))
    made["metadataVersion"] = "Optional.empty" if metadata_version is None else f"Optional[{metadata_version}]"
    return made


def _topic(topic: TopicImage) -> Tree:
    rows: Tree = {str(number): _partition(row) for number, row in topic.partitions.items()}
    return {**rows, "id": uuid_to_str(topic.id), "name": topic.name}


def _resource(kind: int, name: str) -> str:
    word = _RESOURCES.get(kind, str(kind))
    return f"{word}:{name}" if name else word


def _entity(entity: Iterable[tuple[str, str | None]]) -> str:
    """Kafka's tool leaves the defaults out of the name, so that it cannot show them."""
    return "_".join(f"{kind}({'<default>' if name is None else name})" for kind, name in entity)


def _numbers(quotas: Mapping[str, float]) -> Tree:
    from ottla.env.config.settings import Kind
    from ottla.env.config.values import render

    return {name: render(Kind.DOUBLE, float(value)) or "" for name, value in quotas.items()}


def _words(**fields: object) -> str:
    return ", ".join(f"{name}={value}" for name, value in fields.items())


def _list(items: Iterable[object]) -> str:
    return "[" + ", ".join(map(str, items)) + "]"


def _ids(directories: Iterable[Uuid]) -> str:
    return _list(map(uuid_to_str, directories))


def _partition(row: PartitionRegistration) -> str:
    fields = _words(
        replicas=_list(row.replicas), directories=_ids(row.directories), isr=_list(row.isr),
        removingReplicas=_list(row.removing), addingReplicas=_list(row.adding), elr=_list(row.elr),
        lastKnownElr=_list(row.last_known_elr), leader=row.leader,
        leaderRecoveryState="RECOVERING" if row.leader_recovery_state else "RECOVERED", leaderEpoch=row.leader_epoch,
        partitionEpoch=row.partition_epoch,
    )  # fmt: skip
    return f"PartitionRegistration({fields})"


def _endpoints(listeners: Mapping[str, RegisteredEndpoint]) -> str:
    return _list(
        f"Endpoint(listenerName='{endpoint.name}', securityProtocol={_PROTOCOLS.get(endpoint.security_protocol)}, "
        f"host='{endpoint.host}', port={endpoint.port})"
        for endpoint in (listeners[name] for name in sorted(listeners))
    )


def _supported(features: Mapping[str, Range]) -> str:
    return "{" + ", ".join(f"{name}: {features[name].low}-{features[name].high}" for name in sorted(features)) + "}"


def _java(flag: bool) -> str:  # noqa: FBT001 - the one thing it is about
    return str(flag).lower()


def _broker(broker: BrokerRegistration) -> str:
    fields = _words(
        id=broker.id, epoch=broker.epoch, incarnationId=uuid_to_str(broker.incarnation_id),
        listeners=_endpoints(broker.listeners),
        supportedFeatures=_supported(broker.features), rack=f"Optional[{broker.rack}]" if broker.rack else "Optional.empty",
        fenced=_java(broker.fenced), inControlledShutdown=_java(broker.in_controlled_shutdown), isMigratingZkBroker="false",
        directories=_ids(broker.directories),
        cordonedDirectories="null" if broker.cordoned_directories is None else _ids(broker.cordoned_directories),
    )  # fmt: skip
    return f"BrokerRegistration({fields})"


def _controller(controller: ControllerRegistration) -> str:
    fields = _words(
        id=controller.id, incarnationId=uuid_to_str(controller.incarnation_id), zkMigrationReady="false",
        listeners=_endpoints(controller.listeners), supportedFeatures=_supported(controller.features),
    )  # fmt: skip
    return f"ControllerRegistration({fields})"


def _acl(record: AccessControlEntryRecord) -> str:
    fields = _words(
        resourceType=ResourceType(record.resource_type).name, resourceName=record.resource_name,
        patternType=PatternType(record.pattern_type).name, principal=record.principal, host=record.host,
        operation=Operation(record.operation).name, permissionType=Permission(record.permission_type).name,
    )  # fmt: skip
    return f"StandardAcl[{fields}]"


def _scram(record: UserScramCredentialRecord) -> str:
    fields = _words(
        salt=record.salt.hex(), storedKey=record.stored_key.hex(), serverKey=record.server_key.hex(),
        iterations=record.iterations,
    )  # fmt: skip
    return f"ScramCredentialData({fields})"
