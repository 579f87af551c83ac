"""Refusals of a whole Produce request, before any partition is used: nothing of the request is appended.

The request is refused if the first bytes of any partition are not a batch, or if its first batch is transactional and
the request has no transactional id. A request for a single partition is checked here only after it failed.
"""

from __future__ import annotations

from ottla.log.validation import RefusedRequestError, is_transactional
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.pace import paced
from ottla.protocol.generated.produce_request import ProduceRequest


def request_refusal(request: ProduceRequest) -> KafkaError | None:
    try:
        for topic in paced(request.topic_data):
            for data in paced(topic.partition_data):
                if data.records is not None and is_transactional(data.records):
                    if request.transactional_id is not None:
                        return None
                    return RefusedRequestError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    except RefusedRequestError as error:
        return error
    return None
