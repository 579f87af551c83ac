import asyncio

import pytest
from exactly_once import count_words


class CrashError(Exception):
    pass


def crash() -> None:
    raise CrashError


def test_a_crash_before_the_commit_repeats_nothing(ottla_broker):
    words, counts = ottla_broker.topic("words"), ottla_broker.topic("counts")
    ottla_broker.produce(words, "to be or not", "that is")
    servers = ottla_broker.bootstrap_servers

    async def crash_and_start_again() -> None:
        with pytest.raises(CrashError):
            await count_words(servers, words, counts, until=lambda: False, before_commit=crash)
        stop = asyncio.Event()
        worker = asyncio.create_task(count_words(servers, words, counts, until=stop.is_set))
        await asyncio.to_thread(ottla_broker.wait_for_lag, f"counts-{words}", 0, timeout_s=120)
        stop.set()
        await worker

    asyncio.run(crash_and_start_again())
    assert [record.value for record in ottla_broker.records(counts)] == [
        {"text": "to be or not", "words": 4},
        {"text": "that is", "words": 2},
    ]
