"""Metadata records as bytes: a frame version, the record's id and version (unsigned varints), then the message.

A record is written in the version that the cluster's metadata.version allows (`record_version`) and read in the version
of its frame.
"""

from __future__ import annotations

from typing import Any

from ottla.metadata.features import partition_version, register_broker_version
from ottla.protocol.generated.abort_transaction_record import AbortTransactionRecord
from ottla.protocol.generated.access_control_entry_record import AccessControlEntryRecord
from ottla.protocol.generated.begin_transaction_record import BeginTransactionRecord
from ottla.protocol.generated.broker_registration_change_record import BrokerRegistrationChangeRecord
from ottla.protocol.generated.clear_elr_record import ClearElrRecord
from ottla.protocol.generated.client_quota_record import ClientQuotaRecord
from ottla.protocol.generated.config_record import ConfigRecord
from ottla.protocol.generated.delegation_token_record import DelegationTokenRecord
from ottla.protocol.generated.end_transaction_record import EndTransactionRecord
from ottla.protocol.generated.feature_level_record import FeatureLevelRecord
from ottla.protocol.generated.fence_broker_record import FenceBrokerRecord
from ottla.protocol.generated.no_op_record import NoOpRecord
from ottla.protocol.generated.partition_change_record import PartitionChangeRecord
from ottla.protocol.generated.partition_record import PartitionRecord
from ottla.protocol.generated.producer_ids_record import ProducerIdsRecord
from ottla.protocol.generated.register_broker_record import RegisterBrokerRecord
from ottla.protocol.generated.register_controller_record import RegisterControllerRecord
from ottla.protocol.generated.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from ottla.protocol.generated.remove_delegation_token_record import RemoveDelegationTokenRecord
from ottla.protocol.generated.remove_topic_record import RemoveTopicRecord
from ottla.protocol.generated.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from ottla.protocol.generated.topic_record import TopicRecord
from ottla.protocol.generated.unfence_broker_record import UnfenceBrokerRecord
from ottla.protocol.generated.unregister_broker_record import UnregisterBrokerRecord
from ottla.protocol.generated.user_scram_credential_record import UserScramCredentialRecord
from ottla.protocol.generated.zk_migration_state_record import ZkMigrationStateRecord
from ottla.protocol.primitives import DecodeError, Message, Source, read_uvarint, uvarint

__all__ = [
    "FRAME_VERSION",
    "NO_CHANGE",
    "RECORD_CLASSES",
    "AbortTransactionRecord",
    "AccessControlEntryRecord",
    "BeginTransactionRecord",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "DelegationTokenRecord",
    "EndTransactionRecord",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "UserScramCredentialRecord",
    "ZkMigrationStateRecord",
    "decode_frame",
    "encode_frame",
    "record_version",
]

FRAME_VERSION = 1

NO_CHANGE = -2
"""`PartitionChangeRecord.leader` when the record leaves the leader alone."""

RECORD_CLASSES: dict[int, type[Message]] = {
    record.API_KEY: record
    for record in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}


def record_version(record: Message, metadata_version: int) -> int:
    """The version that Kafka's controller writes this record in."""
    kind = type(record)
    if kind is PartitionRecord or kind is PartitionChangeRecord:
        return partition_version(metadata_version)
    if kind is RegisterBrokerRecord:
        return register_broker_version(metadata_version)
    if isinstance(record, BrokerRegistrationChangeRecord):
        # The lowest version that can hold the change, so that older nodes of a mixed cluster can read it.
        if record.cordoned_log_dirs is not None:
            return 3
        if record.log_dirs:
            return 2
        return 1 if record.in_controlled_shutdown else 0
    return 0


def encode_frame(record: Message, metadata_version: int) -> bytes:
    version = record_version(record, metadata_version)
    out: list[Any] = [uvarint(FRAME_VERSION), uvarint(record.API_KEY), uvarint(version)]
    record.encode(out, version)
    return b"".join(out)


def decode_frame(frame: Source) -> Message:
    """Raises DecodeError for a frame that this release cannot read; the log must not be used then."""
    try:
        frame_version, pos = read_uvarint(frame, 0)
        api_key, pos = read_uvarint(frame, pos)
        version, pos = read_uvarint(frame, pos)
    except IndexError as error:
        raise DecodeError("a metadata record ends inside its frame") from error
    if frame_version != FRAME_VERSION:
        raise DecodeError(
            f"a metadata record has frame version {frame_version}; only version {FRAME_VERSION} is supported"
        )
    record_class = RECORD_CLASSES.get(api_key)
    if record_class is None:
        raise DecodeError(f"unknown metadata record id {api_key}")
    record, end = record_class.decode(frame, pos, version)
    if end != len(frame):
        raise DecodeError(f"{record_class.__name__} leaves {len(frame) - end} bytes of its frame")
    return record
