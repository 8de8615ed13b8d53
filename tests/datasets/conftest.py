"""A folder that is served in place of public addresses."""

import functools
import http.server
import threading

import pytest


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder, and the address under which it is served; no file of real data is found."""
    monkeypatch.delenv("FEDVINE_DATA", raising=False)
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_) -> None: ...

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
