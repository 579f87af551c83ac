"""One data directory, handed from server to server: what clients saw before and after each handover."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop import history, raw_batches
from tests.interop.observation import Observation, observe
from tests.interop.ottla_server import OttlaServer, format_dynamic, hand_over
from tests.interop.producer_session import Answer, ProducerSession
from tests.interop.settled import await_led, await_settled
from tests.support.apache_kafka import ApacheKafka

SESSION_TOPIC = "session"


@dataclass
class Stage:
    """One server's turn."""

    server: str
    found: Observation | None = None
    """What clients saw at its start: None for the first."""
    left: Observation | None = None
    """What clients saw before its end."""
    last_answer: Answer | None = None
    """To the last batch of the producer that is at work all the time."""
    repeated: Answer | None = None
    """To the same, sent once more at the next server's start, then to one that skips, then to the next in order."""
    skipped: Answer | None = None
    next_answer: Answer | None = None
    files: Path = Path()
    """A copy of what it left on disk."""


@dataclass
class Journey:
    killed: bool
    stages: list[Stage] = field(default_factory=list)


def travel(directory: Path, route: Sequence[type[ApacheKafka]], *, dynamic: bool, kill: bool) -> Journey:
    journey = Journey(kill)
    where = directory / "server"
    folders = {"log.dirs": f"{where}/data,{where}/more"} if dynamic else {}
    server = route[0](where, properties={**history.PROPERTIES, **folders})
    if dynamic:
        format_dynamic(server)
    session = ProducerSession(SESSION_TOPIC)
    for turn, kind in enumerate(route):
        server = hand_over(server, kind) if turn else server
        stage = Stage("ottla" if kind is OttlaServer else "apache")
        journey.stages.append(stage)
        server.start()
        try:
            _serve(server, stage, session, turn, kill=kill, last=turn == len(route) - 1)
        except BaseException:
            server.kill()
            raise
        (server.kill if kill else server.stop)()
        stage.files = directory / f"files-{turn}-{stage.server}"
        for folder in server.properties["log.dirs"].split(","):  # no partition is in two of them
            shutil.copytree(folder, stage.files, dirs_exist_ok=True)
    return journey


def _serve(server: ApacheKafka, stage: Stage, session: ProducerSession, turn: int, *, kill: bool, last: bool) -> None:
    address = server.bootstrap_servers
    if turn:
        stage.found = observe(address, history.GROUPS)
        stage.repeated = session.repeat(server.port)
        stage.skipped = session.skip(server.port)
        stage.next_answer = session.send(server.port)
    else:
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic(SESSION_TOPIC, 1, 1)])[SESSION_TOPIC].result(20)
        await_led(address, SESSION_TOPIC)
        session.begin(server.port)
        raw_batches.write(address)
    if not last:
        history.live(address, transactions=stage.server == "apache", run=turn)
        if stage.server == "apache" and turn == 0:
            history.compact(address)
        if stage.server == "apache" and kill:
            history.leave_a_transaction_open(address)
        stage.last_answer = session.send(server.port)
        await_settled(address)
        stage.left = observe(address, history.GROUPS)
