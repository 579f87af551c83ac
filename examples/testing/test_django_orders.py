import django
import django_orders
from django.test import SimpleTestCase

from ottla.testing import BrokerMixin

django.setup()


class OrdersTest(BrokerMixin, SimpleTestCase):
    def setUp(self):
        super().setUp()
        self.topic = self.broker.topic("orders")
        names = {"KAFKA_SERVERS": self.broker.bootstrap_servers, "ORDERS_TOPIC": self.topic}
        self.enterContext(self.settings(ROOT_URLCONF=django_orders, **names))

    def post(self):
        return self.client.post("/orders/", {"id": 1}, content_type="application/json")

    def test_an_order_becomes_an_event(self):
        self.assertEqual(self.post().status_code, 201)
        self.assertEqual([record.value for record in self.broker.records(self.topic)], [{"id": 1}])

    def test_a_broker_that_refuses_the_event(self):
        self.broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED")
        answer = self.post()
        self.assertEqual(answer.status_code, 503)
        self.assertIn("Topic authorization failed", answer.json()["error"])
        self.assertEqual(self.broker.records(self.topic), [])
