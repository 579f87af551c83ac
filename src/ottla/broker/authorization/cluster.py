"""Rules that need an operation on the cluster and nothing else."""

from __future__ import annotations

from ottla.broker.authorization.rules import for_cluster
from ottla.model.acls import Operation

alter = for_cluster(Operation.ALTER)
alter_configs = for_cluster(Operation.ALTER_CONFIGS)
between_nodes = for_cluster(Operation.CLUSTER_ACTION)
describe = for_cluster(Operation.DESCRIBE)
describe_configs = for_cluster(Operation.DESCRIBE_CONFIGS)
