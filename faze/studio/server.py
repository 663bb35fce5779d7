"""Serving a folder to this machine's own browsers, and to nobody else."""

import functools
import http.server
from pathlib import Path


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files as they are on disk, each request anew, and no word about it."""

    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".onnx": "application/octet-stream",
    }

    def end_headers(self) -> None:
        """Let nothing be kept: the same address shows other networks tomorrow."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Keep silent."""


def open_server(folder: Path, port: int) -> http.server.ThreadingHTTPServer:
    """Bind a server of a folder to 127.0.0.1; port 0 takes a free one.

    Raises:
        OSError: the port is taken.
    """
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), functools.partial(Handler, directory=str(folder)))
