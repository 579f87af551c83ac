"""The security of a listener: TLS, a login, or both. A PLAINTEXT listener has none, and no cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.login.listener_sasl import ListenerSasl
    from ottla.broker.login.sasl_gate import SaslGate
    from ottla.security.tls import TlsSource


class ListenerSecurity:
    __slots__ = ("pre_login_bytes", "sasl", "tls")

    def __init__(self, *, tls: TlsSource | None, sasl: ListenerSasl | None, pre_login_bytes: int | None) -> None:
        self.tls = tls
        self.sasl = sasl
        self.pre_login_bytes = pre_login_bytes

    def new_gate(self) -> SaslGate | None:
        if self.sasl is None:
            return None
        from ottla.broker.login.sasl_gate import SaslGate

        return SaslGate(self.sasl)
