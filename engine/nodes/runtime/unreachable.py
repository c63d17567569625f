"""Reasons for a missing connection, in plain language, for every client."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator

_WHY = {
    errno.ECONNREFUSED: "nothing listens at {where}",
    errno.EHOSTUNREACH: "{where} cannot be reached from here",
    errno.ENETUNREACH: "{where} cannot be reached from here",
    errno.ETIMEDOUT: "{where} does not answer",
    errno.ECONNRESET: "{where} closed the connection",
}
"""Messages by the error number of the operating system."""


def why_unconnected(error: BaseException, host: str = "", port: int | None = None) -> str:
    """Return why a connection failed: `nothing listens at 127.0.0.1:8008`. The client's error may know the destination
    better than `host` and `port`: a proxy, say. Unknown errors keep the client's words."""
    host, port = getattr(error, "host", None) or host, getattr(error, "port", None) or port
    where = f"[{host}]" if ":" in host else host
    where += f":{port}" if port and host else ""
    for cause in _causes(error):
        match cause:
            case ssl.SSLCertVerificationError():
                return f"the certificate of {where} is not accepted: {cause.verify_message}"
            case ssl.SSLError():
                why = getattr(cause, "reason", None) or cause.args[-1]
                return f"{where} does not speak TLS correctly ({why})"
            case socket.gaierror():
                return f"there is no host {host}"
            case TimeoutError():
                return f"{where} does not answer"
            case OSError(errno=number) if number in _WHY:
                return _WHY[number].format(where=where or "the address")
    return str(error) or type(error).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes: clients wrap the operating system's error, or several, one for each address."""
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        inner = [
            getattr(one, "os_error", None),
            one.__cause__,
            one.__context__,
            *getattr(one, "exceptions", ()),
        ]
        left += [each for each in inner if isinstance(each, BaseException)]
        yield one
