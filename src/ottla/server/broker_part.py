"""The broker of a node: its logs, partitions and coordinators, registered with the controller and kept in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from ottla.broker.broker import Broker
from ottla.broker.fetch.sessions import FetchSessions
from ottla.broker.transactions.producer_ids import ProducerIds
from ottla.env.config.overrides import resolve_topic_config
from ottla.env.config.topic import TopicConfig
from ottla.log.cleaner import Cleaner
from ottla.log.log_directory import cordon
from ottla.log.log_store import LogDirectoryError, LogStore
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.meta_properties import MetaProperties
from ottla.model.ids import TopicPartition, new_uuid
from ottla.model.topic_names import OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.replication.context import ReplicaContext
from ottla.replication.fetcher import FetcherSettings
from ottla.replication.fetchers import Fetchers
from ottla.replication.replicas import Replicas
from ottla.replication.throttle import Throttle
from ottla.server.checks.record_threads import RecordThreads
from ottla.server.cluster.controller_channel import ActiveControllerChannel
from ottla.server.cluster.peers import BrokerPeers
from ottla.server.cluster.quorum import QuorumMember
from ottla.server.cluster.registration import Registration
from ottla.server.cluster.replication import Replication
from ottla.server.early_imports import import_early
from ottla.server.errors import StartupError
from ottla.server.groups import make_groups
from ottla.server.housekeeping import Housekeeping
from ottla.server.transactions import make_transactions

if TYPE_CHECKING:
    from ottla.broker.schemas.schema_validation import SchemaValidation
    from ottla.env.config.broker.config import BrokerConfig
    from ottla.log.erasure import Eraser, KeyCustody
    from ottla.server.machine import NodeMachine
    from ottla.server.node import Node


class BrokerPart:
    def __init__(
        self,
        node: Node,
        quorum: QuorumMember,
        controller: ActiveControllerChannel,
        identity: MetaProperties,
        logs: LogStore,
        machine: NodeMachine,
    ) -> None:
        self._node = node
        self._quorum = quorum
        self._controller = controller
        self._logs = logs
        self._machine = machine
        self._clock = machine.clock
        self._random = machine.random
        self._timers = machine.timers(asyncio.get_running_loop())
        self._housekeeping: Housekeeping | None = None
        self._imports: asyncio.Task[None] | None = None
        self._peers = BrokerPeers(lambda: self._config, quorum.publisher)
        replicas = self._make_replicas()
        replicas.put_off.later = self._timers.call_soon
        self._replication = Replication(lambda: self._config, replicas, self._timers, controller)
        self._registration = self._register_as(identity, replicas)
        self.broker = self._build(identity, replicas)

    @property
    def _config(self) -> BrokerConfig:
        return self._node.config

    def _build(self, identity: MetaProperties, replicas: Replicas) -> Broker:
        config = self._config
        return Broker(
            node_id=config.node_id,
            cluster_id=identity.cluster_id,
            config=config,
            clock=self._clock,
            timers=self._timers,
            metadata=self._quorum.publisher,
            quorum=self._quorum,
            logs=self._logs,
            replicas=replicas,
            controller=self._controller,
            producer_ids=ProducerIds(self._controller.allocate_producer_ids, self._producer_ids_request),
            fetch_sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots, self._clock, self._random),
            make_groups=lambda: make_groups(
                self._config, self._clock, self._random, self._timers, replicas, lambda: self.broker.shares.persister
            ),
            make_transactions=make_transactions,
            peers=self._peers,
            schemas=self._make_schemas(),
            record_workers=RecordThreads(),
            leader_throttle=Throttle(
                self._clock,
                config.node_id,
                lambda: self._config.leader_replication_throttled_rate,
                lambda topic: topic.leader_replication_throttled_replicas,
            ),
        )

    def _make_schemas(self) -> SchemaValidation | None:
        """None, and nothing imported, unless a registry is configured."""
        config = self._config
        if not config.ottla_schema_registry_url:
            return None
        from ottla.broker.schemas.quarantine import Quarantine
        from ottla.broker.schemas.schema_judgement import Limits
        from ottla.server.checks.schemas import RegistrySchemas

        quarantine = cache(lambda: Quarantine(self.broker))  # there is no broker yet
        return RegistrySchemas(
            config.ottla_schema_registry_url,
            lambda topic, source, records: quarantine().write(topic, source, records),
            max_schemas=config.ottla_schema_validation_max_schemas,
            timeout_s=config.ottla_schema_registry_timeout_ms / 1000,
            limits=Limits(config.ottla_schema_validation_max_record_bytes, config.ottla_schema_validation_max_ms),
        )

    def _make_replicas(self) -> Replicas:
        config = self._config
        context = ReplicaContext(config.node_id, self._machine.liveness or self._clock, config.replica_lag_time_max_ms)
        settings = FetcherSettings(
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            partition_max_bytes=config.replica_fetch_max_bytes,
            backoff_ms=config.replica_fetch_backoff_ms,
        )
        throttle = Throttle(
            self._clock,
            config.node_id,
            lambda: self._config.follower_replication_throttled_rate,
            lambda topic: topic.follower_replication_throttled_replicas,
        )
        fetchers = Fetchers(context, settings, throttle)
        replicas = Replicas(
            config.node_id, self._logs, self._clock, self._topic_config, context=context, fetchers=fetchers
        )
        replicas.verify_transactions(enabled=config.transaction_partition_verification_enable)
        return replicas

    def _register_as(self, identity: MetaProperties, replicas: Replicas) -> Registration:
        def on_epoch(epoch: int) -> None:
            replicas.context.broker_epoch = epoch

        return Registration(
            self._node,
            self._controller,
            self._quorum.publisher,
            identity,
            self._logs,
            incarnation=new_uuid(self._random.token_bytes),
            on_epoch=on_epoch,
            on_replaced=self._node.fail,
        )

    def _producer_ids_request(self) -> AllocateProducerIdsRequest:
        return AllocateProducerIdsRequest(self._config.node_id, self._registration.broker_epoch)

    def _topic_config(self, topic: str) -> TopicConfig:
        return resolve_topic_config(self._quorum.publisher.image.topic_config(topic), self._config)

    # -------------------------------------------------------------------------------------------------- start and stop

    async def start(self, let_in: Callable[[], None]) -> None:
        """Load every partition, register, start the partitions. `let_in` is called in between and accepts clients."""
        broker, config, registration = self.broker, self._config, self._registration
        cordon(self._logs.directories, config.cordoned_log_dirs)
        # Behind the registration the metadata is as new as the cluster's: older metadata would call new logs strays.
        await registration.register()
        self._logs.custody = self._custody() if config.encrypts_at_rest else None
        try:
            broker.replicas.load(broker.image)
        except LogDirectoryError as error:
            raise StartupError(str(error)) from error
        alone = registration.alone
        if alone:
            # Leaders are known only now: partitions get their state once, not at every step of the registration.
            await registration.unfence()
        self._quorum.publisher.subscribe(broker.replicas.on_metadata)
        self._quorum.publisher.subscribe(self._on_coordinators_metadata)
        self._quorum.publisher.subscribe(self._on_brokers_metadata)
        cleaner = Cleaner(
            broker.logs,
            self._clock,
            dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
            load_factor=config.log_cleaner_io_buffer_load_factor,
        )
        self._housekeeping = Housekeeping(
            config,
            self._clock,
            broker.logs,
            broker.replicas,
            cleaner,
            self._eraser(),
            timers=self._timers,
        )
        self._housekeeping.start()
        self._replication.start()
        let_in()
        self._imports = asyncio.ensure_future(import_early())
        if not alone:
            await registration.unfence()

    def _custody(self) -> KeyCustody | None:
        from ottla.security.encryption import EncryptedStorage

        storages = (log_dir.storage for log_dir in self._logs.online_directories())
        return next((storage for storage in storages if isinstance(storage, EncryptedStorage)), None)

    def _eraser(self) -> Eraser | None:
        if self._logs.custody is None:
            return None
        from ottla.log.erasure import Eraser

        return Eraser(self._logs, self._clock, self._logs.custody)

    async def hand_over(self) -> None:
        """Controlled shutdown: the controller first moves leadership to other brokers."""
        if self._config.controlled_shutdown_enable:
            await self._registration.shut_down()

    async def leave(self) -> None:
        """Stop all tasks; the logs stay open until `close_logs`."""
        if self._imports is not None:
            self._imports.cancel()
        if self._housekeeping is not None:
            await self._housekeeping.stop()
            self._housekeeping = None
        if self.broker.has_shares:
            self.broker.shares.close()
        if self.broker.has_groups:
            self.broker.groups.close()
        if self.broker.has_transactions:
            self.broker.transactions.close()
        if self.broker.schemas is not None:
            self.broker.schemas.close()
        if self.broker.record_workers is not None:
            self.broker.record_workers.close()
        self._registration.stop()
        await self._replication.stop()
        self.broker.producer_ids.close()
        self._peers.close()

    def close_logs(self, *, clean: bool) -> None:
        if clean:
            self.broker.replicas.finish_removals()
            self._logs.shutdown(self._clock.time_ms(), self._registration.broker_epoch, run_all=self._machine.run_all)
        else:
            self.broker.replicas.put_off.later = None
            self._logs.abandon()

    # ------------------------------------------------------------------------------------------------------- meanwhile

    def _on_coordinators_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A coordinator is created when there is a topic to load from, or when a client asks for it."""
        broker = self.broker
        if broker.has_groups or OFFSETS_TOPIC in image.topics_by_name:
            broker.groups.on_metadata(delta, image, broker.metadata_offset)
        if broker.has_transactions or TRANSACTION_STATE_TOPIC in image.topics_by_name:
            broker.transactions.on_metadata(delta, image)
        if broker.has_shares or SHARE_GROUP_STATE_TOPIC in image.topics_by_name:
            broker.shares.on_metadata(delta, image)

    def _on_brokers_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.brokers or delta.reloaded:
            self.broker.recently_fenced.on_metadata(delta, image, self._clock.monotonic_ms())

    def on_config(self, config: BrokerConfig) -> None:
        """Settings that follow the cluster's have changed."""
        self.broker.config = config
        if cordon(self._logs.directories, config.cordoned_log_dirs):
            self._registration.beat_now()
        if self._housekeeping is not None:
            self._housekeeping.follow(config)
        self.broker.replicas.verify_transactions(enabled=config.transaction_partition_verification_enable)

    def on_directory_failed(self, partitions: list[TopicPartition]) -> None:
        self.broker.replicas.on_directory_failed(partitions)
        self._registration.beat_now()
