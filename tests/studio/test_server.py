"""The studio's server answers only browsers on this machine.

Regression: it answered requests for any host name, so another site's page could resolve its name to 127.0.0.1 after
loading, and read the strips.
"""

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from faze.studio.server import open_server


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "studio.json").write_text("{}")
    with open_server(tmp_path, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def ask(port: int, host: str | None, path: str = "/studio.json") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest("GET", path, skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_this_machine_by_its_own_name_is_answered(name: str, port: int) -> None:
    assert ask(port, f"{name}:{port}") == (200, b"{}")


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{port}"],
)
def test_any_other_name_is_not(host: str | None, port: int) -> None:
    status, content = ask(port, None if host is None else host.format(port=port))
    assert status == 421 and b"{}" not in content


def test_it_listens_on_loopback_and_leads_out_of_its_folder_nowhere(port: int, tmp_path: Path) -> None:
    (tmp_path.parent / "secret").write_text("x")
    assert ask(port, f"127.0.0.1:{port}", "/../secret")[0] == 404
    assert ask(port, f"127.0.0.1:{port}", "/%2e%2e/secret")[0] == 404
    with open_server(tmp_path, 0) as other:
        assert other.server_address[0] == "127.0.0.1"
