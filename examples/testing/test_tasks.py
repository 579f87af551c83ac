import threading
import time

from tasks import Tasks


def test_tasks_are_retried_and_set_aside(ottla_broker):
    with ottla_broker.namespace("tasks") as namespace:
        tasks = Tasks(ottla_broker.bootstrap_servers, namespace.topic("mail"))
        ottla_broker.create_topic(tasks.failed_topic)
        sent, attempts = [], []

        @tasks.task
        def send_mail(to):
            attempts.append(to)
            if to == "nobody" or (to == "busy" and attempts.count("busy") < 2):
                raise ConnectionError(to)
            sent.append(to)

        for to in ("ada", "busy", "nobody"):
            send_mail(to=to)
        stop = threading.Event()
        worker = threading.Thread(target=tasks.work, args=[stop.is_set])
        worker.start()
        try:
            deadline = time.monotonic() + 60
            while len(attempts) < 6 and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            stop.set()
            worker.join()
        assert sent == ["ada", "busy"]
        assert attempts.count("nobody") == 3
        (failed,) = ottla_broker.records(tasks.failed_topic)
        assert failed.value == {
            "task": "send_mail",
            "arguments": {"to": "nobody"},
            "attempt": 4,
            "error": "ConnectionError('nobody')",
        }
