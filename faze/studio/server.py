"""Serve a folder to browsers on this machine only."""

import functools
import http
import http.server
from pathlib import Path


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serve files as they are on disk at each request, without logging."""

    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".onnx": "application/octet-stream",
    }

    def send_head(self) -> object:
        """Answer only requests whose Host header is this machine's.

        Otherwise a foreign page could resolve its own host name to 127.0.0.1 (DNS rebinding) and read the strips.
        """
        host, port = self.headers.get("Host", ""), self.server.server_address[1]
        if host not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            self.send_error(http.HTTPStatus.MISDIRECTED_REQUEST, "ask for 127.0.0.1")
            return None
        return super().send_head()

    def end_headers(self) -> None:
        """Forbid caching, since the same address may show other networks later."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def open_server(folder: Path, port: int) -> http.server.ThreadingHTTPServer:
    """Bind a server of a folder to 127.0.0.1; port 0 takes a free one.

    Raises:
        OSError: the port is taken.
    """
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), functools.partial(Handler, directory=str(folder)))
