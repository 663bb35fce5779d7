"""Ports on this machine."""

import contextlib
import socket

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as held:
        held.bind((HOST, 0))
        return held.getsockname()[1]


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False
