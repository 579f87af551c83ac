"""Formatting the log directories of a configuration, and looking whether that was done."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ottla.controller.format import FormatError, FormatRequest, format_storage
from ottla.env.config.broker.config import BrokerConfig
from ottla.env.seams import Storage
from ottla.metadata.meta_properties import MetaPropertiesError, read_meta_properties
from ottla.model.ids import new_uuid, uuid_to_str
from ottla.protocol.primitives import Message
from ottla.raft.voters import VoterEndpoint
from ottla.runtime.clock import SystemClock, SystemRandom
from ottla.runtime.disk import DiskStorage
from ottla.server.errors import StartupError

ENCRYPTION_KEYS = "encryption-keys"
"""`ottla.security.keystore.FILE_NAME`; that module is not loaded if nothing is encrypted."""


def open_storage(config: BrokerConfig) -> Storage:
    """The disk, behind encryption where a master key is given."""
    directories = [*config.data_dirs, config.metadata_dir]
    if not config.encrypts_at_rest:
        _refuse_sealed(directories)
        return DiskStorage()
    from ottla.security.encryption import EncryptedStorage
    from ottla.security.keystore import KeyStoreError, MasterKeys

    try:
        storage = EncryptedStorage(DiskStorage(), directories, MasterKeys(config))
        storage.check()
    except KeyStoreError as error:
        raise StartupError(str(error)) from None
    return storage


def _refuse_sealed(directories: list[str]) -> None:
    """Without the keys every encrypted segment looks damaged, and recovery would cut it off."""
    sealed = next((path for path in directories if os.path.exists(os.path.join(path, ENCRYPTION_KEYS))), None)
    if sealed is not None:
        raise StartupError(
            f"{sealed} is encrypted ({ENCRYPTION_KEYS} is there) and no master key is set: set "
            "ottla.encryption.master.key.file, .env, .command or .url. To stop encrypting, move its partitions to a broker "
            "without encryption"
        )


def random_uuid() -> str:
    """A new id as `kafka-storage.sh random-uuid` prints it."""
    return uuid_to_str(new_uuid(os.urandom))


def is_formatted(config: BrokerConfig) -> bool:
    """Whether the metadata directory has a meta.properties file."""
    try:
        return read_meta_properties(DiskStorage(), config.metadata_dir) is not None
    except (MetaPropertiesError, OSError) as error:
        raise StartupError(str(error)) from error


def voter_endpoints(config: BrokerConfig, ports: dict[str, int] | None = None) -> tuple[VoterEndpoint, ...]:
    """Where other voters reach this controller; `ports` are those that were bound, by listener name."""
    bound = ports or {}
    return tuple(
        VoterEndpoint(e.listener_name, e.host or "localhost", bound.get(e.listener_name, e.port))
        for e in config.advertised_controller_listeners
    )


def format_standalone(
    config: BrokerConfig, ports: dict[str, int] | None = None, extra_records: Sequence[Message] = ()
) -> list[str]:
    """Make `config`'s directories a new cluster of this node alone; the lines to print."""
    static = bool(config.voters)
    request = FormatRequest(
        cluster_id=random_uuid(),
        node_id=config.node_id,
        log_dirs=list(config.data_dirs),
        metadata_log_dir=config.metadata_log_dir,
        standalone=None if static else voter_endpoints(config, ports),
        extra_records=extra_records,
    )
    return run_format(config, request)


def run_format(config: BrokerConfig, request: FormatRequest) -> list[str]:
    try:
        return format_storage(open_storage(config), SystemClock(), SystemRandom(), request)
    except (FormatError, MetaPropertiesError) as error:
        raise StartupError(str(error)) from error
    except OSError as error:
        raise StartupError(f"cannot write {error.filename}: {error.strerror}") from error
