"""The directories of a node: checks that they belong to this node, and locks them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ottla.env.config.broker.config import BrokerConfig
from ottla.env.seams import Clock, RandomSource, Storage
from ottla.log.file_names import LOCK
from ottla.log.log_directory import LogDirectory
from ottla.log.log_store import LogDirectoryError, LogStore
from ottla.metadata.meta_properties import (
    FILE_NAME,
    MetaProperties,
    MetaPropertiesError,
    complete_directory_ids,
    load_ensemble,
)
from ottla.model.ids import METADATA_DIR, TopicPartition, new_uuid
from ottla.server.errors import StartupError

OnFailed = Callable[[LogDirectory, list[TopicPartition]], None]


class Directories:
    def __init__(
        self, config: BrokerConfig, storage: Storage, clock: Clock, random: RandomSource, open_files: int
    ) -> None:
        self._open_files = open_files
        self._config = config
        self._storage = storage
        self._clock = clock
        self._random = random
        self._unlock: Callable[[], None] | None = None
        self.logs: LogStore | None = None
        """The logs of a broker. A node that is only a controller has no partition but the metadata log."""

    def open(self, on_failed: OnFailed) -> MetaProperties:
        """Lock and open all directories. Returns the meta.properties of the metadata directory. Raises StartupError
        with the reason.
        """
        config = self._config
        try:
            ensemble = load_ensemble(
                self._storage, config.data_dirs, metadata_log_dir=config.metadata_dir, node_id=config.node_id
            )
            self._check_metadata_place()
            ensemble = complete_directory_ids(
                self._storage, ensemble, partial(new_uuid, self._random.token_bytes), self._clock.time_ms()
            )
            self._take_metadata_dir(config.metadata_dir)
            if config.is_broker:
                self._open_logs(ensemble, on_failed)
        except (MetaPropertiesError, LogDirectoryError) as error:
            raise StartupError(str(error)) from error
        except OSError as error:
            raise StartupError(f"{error.filename}: {error.strerror}") from error
        return ensemble[config.metadata_dir]

    def require_logs(self) -> LogStore:
        if self.logs is None:
            raise RuntimeError("the log directories are not open")
        return self.logs

    def _check_metadata_place(self) -> None:
        """Without `metadata.log.dir` the metadata directory is the first of `log.dirs`. If the order of `log.dirs`
        changed, the node would start with an empty metadata log and could vote twice.
        """
        for path in self._config.data_dirs:
            place = f"{path}/{METADATA_DIR}"
            if path != self._config.metadata_dir and self._storage.exists(place):
                raise StartupError(
                    f"Found unexpected metadata location in data directory `{place}` "
                    f"(the configured metadata directory is {self._config.metadata_dir})."
                )

    def _open_logs(self, ensemble: dict[str, MetaProperties], on_failed: OnFailed) -> None:
        config = self._config
        logs = LogStore(
            self._storage,
            self._random,
            config.data_dirs,
            open_files=self._open_files,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            on_directory_failed=on_failed,
        )
        logs.open_directories({path: p.directory_id for path, p in ensemble.items() if p.directory_id is not None})
        self.logs = logs

    def _take_metadata_dir(self, path: str) -> None:
        """A data directory may be offline, but the metadata directory must be writable: a node cannot run without its
        metadata log. A broker's log store locks `log.dirs`; a metadata directory outside `log.dirs` is locked here.
        """
        self._storage.open(f"{path}/{FILE_NAME}").close()
        if path not in self._config.data_dirs or not self._config.is_broker:
            self._unlock = self._storage.lock(f"{path}/{LOCK}")
            if self._unlock is None:
                raise StartupError(
                    f"{path} is locked: another server uses this directory; stop that server, or change log.dirs"
                )

    def release(self) -> None:
        """Release the lock of the metadata directory; the log store releases its own locks."""
        if self._unlock is not None:
            self._unlock()
            self._unlock = None
