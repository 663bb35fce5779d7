"""A job that runs in the benchmark's processes, and describes its process, fails or sleeps."""

import os
import threading
import time
from multiprocessing.connection import Connection

from faze.base.errors import UserError
from faze.benchmark.processes import answer_requests

VARIABLES = ("RANK", "OF_SERVER", "GLIBC_TUNABLES")


def probe(connection: Connection, fails: str = "") -> None:
    """Answer requests (`describe`, `sleep`, `fail`); rank 1 fails at `fail`, or immediately if `fails` is `at once`."""

    def fail() -> dict:
        if os.environ["RANK"] == "1":
            raise UserError("rank 1 fails")
        return sleep()

    def sleep() -> dict:
        time.sleep(600)
        return {}

    def describe() -> dict:
        facts = {"pid": os.getpid(), "parent": os.getppid(), "threads": threading.active_count()}
        return facts | {name: os.environ.get(name) for name in VARIABLES}

    if fails == "at once":
        fail()
    answer_requests(connection, {}, {"describe": describe, "sleep": sleep, "fail": fail})
