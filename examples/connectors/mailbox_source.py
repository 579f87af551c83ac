"""Mail of an mbox file as records: a source connector of one's own.

name: mail
connector.class: mailbox_source:MailboxSource
file: /var/mail/me
topic: mail
"""

import mailbox

from ottla.connect.config import need
from ottla.connect.connector import Change, Place, Source


class MailboxSource(Source):
    def poll(self, after: Place | None) -> list[Change]:
        read = (after or {}).get("messages", 0)
        box = mailbox.mbox(need(self.config, "file"), create=False)
        found: list[Change] = []
        for number, message in enumerate(box):
            if number >= read and len(found) < 1000:
                value = {name: message[name] for name in ("from", "subject", "date")} | {"text": message.get_payload()}
                change = Change(topic=need(self.config, "topic"), key=message["message-id"], value=value)
                change.place = {"messages": number + 1}
                found.append(change)
        return found
