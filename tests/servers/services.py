"""PostgreSQL, moto's S3 and MLflow's server, each in a separate process on the loopback interface; and a proxy."""

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ports import HOST, answers, free_port

KEYS = {"AWS_ACCESS_KEY_ID": "made-up", "AWS_SECRET_ACCESS_KEY": "made-up", "AWS_DEFAULT_REGION": "us-east-1"}
BUCKET = "faze"


def wait_for(port: int, process: subprocess.Popen, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args[0]} ended with {process.returncode}")
        if answers(port):
            return
        time.sleep(0.1)
    raise RuntimeError(f"{process.args} does not listen on {port}")


class Service:
    """A process that can be killed and restarted, and that keeps its data."""

    def __init__(self, command: list[str | Path], port: int, log: Path, **options: object) -> None:
        self._command, self._options, self.port, self.log = list(map(str, command)), options, port, log
        self.start()

    def start(self) -> None:
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True, **self._options
            )
        wait_for(self.port, self._process)

    def kill(self) -> None:
        """Kill the process and all its children, as a machine crash would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Postgres(Service):
    """A separate database, with a separate socket file."""

    def __init__(self, log: Path) -> None:
        programs = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
        # PostgreSQL does not run as root. The temporary folder of pytest is root's alone.
        user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
        self.folder = Path(tempfile.mkdtemp(prefix="faze-postgres-"))
        if user:
            shutil.chown(self.folder, "postgres", "postgres")
        password, port = self.folder / "password", free_port()
        password.write_text("secret")
        password.chmod(0o644)
        subprocess.run(
            [
                programs / "initdb",
                "-D",
                self.folder / "data",
                "-U",
                "faze",
                "-A",
                "scram-sha-256",
                "--pwfile",
                password,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
            **user,
        )
        self.uri = f"postgresql://faze:secret@{HOST}:{port}/postgres"
        options = ["-c", f"listen_addresses={HOST}", "-c", "unix_socket_directories=", "-c", f"port={port}"]
        super().__init__([programs / "postgres", "-D", self.folder / "data", *options], port, log, cwd="/", **user)

    def kill(self) -> None:
        """Break every connection at once; the next start recovers from the write-ahead log."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def recovered(self, seconds: float = 60) -> None:
        """Wait until the database accepts users: for some seconds after a crash, it listens but refuses them."""
        import psycopg2

        end = time.monotonic() + seconds
        while True:
            try:
                return psycopg2.connect(self.uri).close()
            except psycopg2.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)


class S3(Service):
    """Moto's server, with one bucket."""

    def __init__(self, log: Path) -> None:
        port = free_port()
        super().__init__([sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)], port, log)
        self.url = f"http://{HOST}:{port}"
        import boto3

        keys = {"aws_access_key_id": "made-up", "aws_secret_access_key": "made-up", "region_name": "us-east-1"}
        self.client = boto3.client("s3", endpoint_url=self.url, **keys)
        self.client.create_bucket(Bucket=BUCKET)

    def put(self, folder: Path, prefix: str) -> None:
        """Store the files of a folder."""
        for file in filter(Path.is_file, folder.rglob("*")):
            self.client.upload_file(str(file), BUCKET, f"{prefix}/{file.relative_to(folder)}")

    def get(self, prefix: str, folder: Path) -> None:
        """Fetch everything stored under a prefix."""
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/"):
            for stored in page.get("Contents", []):
                file = folder / stored["Key"].removeprefix(f"{prefix}/")
                file.parent.mkdir(parents=True, exist_ok=True)
                self.client.download_file(BUCKET, stored["Key"], str(file))

    def ask_for_keys(self, asked: bool) -> None:
        """Reject all keys, or accept them again."""
        request = urllib.request.Request(
            f"{self.url}/moto-api/reset-auth", b"0" if asked else b"inf", {"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(request).close()


class Mlflow(Service):
    """MLflow's own server. With one worker and without its job runner, it needs two processes instead of fifteen."""

    def __init__(self, log: Path, database: str, artifacts: str, *options: str, **environment: str) -> None:
        port = free_port()
        command = [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"]
        command += ["--backend-store-uri", database, "--artifacts-destination", artifacts, *options]
        silence = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW", "AWS"))}
        super().__init__(command, port, log, env=inherited | KEYS | silence | environment, cwd=log.parent)
        self.uri = f"http://{HOST}:{port}"


class Proxy:
    """A proxy in front of a server: it counts calls, delays each, and lets a test act at the n-th call."""

    def __init__(self, port: int) -> None:
        self.calls: list[tuple[str, str]] = []
        self.delay_s = 0.0
        self.away = False  # it hangs up on everybody, as if the server were not there
        self.before: Callable[[int], None] = lambda number: None
        self.loses: Callable[[str, str], bool] = lambda method, path: False  # the answer, after the server has acted
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer((HOST, 0), type("Handler", (_Handler,), {"proxy": self, "to": port}))
        self._server.daemon_threads = True
        self.uri = f"http://{HOST}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def note(self, method: str, path: str) -> int:
        with self._lock:
            self.calls.append((method, path.partition("?")[0]))
            return len(self.calls)

    def at_path(self, method: str, part: str, act: Callable[[], None]) -> None:
        """Call a function before passing on each further call of this method whose path contains this text."""
        del self.calls[:]
        self.before = lambda n: act() if self.calls[n - 1][0] == method and part in self.calls[n - 1][1] else None

    def at_call(self, number: int, act: Callable[[], None]) -> None:
        """Call a function once, before passing on the n-th further call."""
        del self.calls[:]
        self.before = lambda n: act() if n == number else None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    to: int
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        number = self.proxy.note(self.command, self.path)
        time.sleep(self.proxy.delay_s)
        self.proxy.before(number)
        if self.proxy.away:
            self._hang_up()
            return
        try:
            connection = http.client.HTTPConnection(HOST, self.to, timeout=60)
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self._hang_up()
            return
        if self.proxy.loses(self.command, self.path):
            self._hang_up()
            return
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        length = str(len(content)) if self.command != "HEAD" else answer.getheader("Content-Length", "0")
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
