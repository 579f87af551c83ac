"""What sending on a socket may use."""

from __future__ import annotations

import errno
import socket

MORE_FOLLOWS: int = getattr(socket, "MSG_MORE", 0)
"""A flag for `send`: the rest of the answer comes at once, so the packet waits for it. A mere hint, and Linux's own."""

NO_SENDFILE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
"""What `os.sendfile` answers where the system or the file system cannot do it: the file is read instead."""
