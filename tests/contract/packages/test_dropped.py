from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest


class Journal(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Requests-Dropped", "1")
        self.end_headers()
        self.wfile.write(b"[]")


def test_dropped_requests_are_an_error(petstore_per_test):
    with HTTPServer(("127.0.0.1", 0), Journal) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        petstore_per_test.ops_url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(RuntimeError, match="dropped 1 request"):
            petstore_per_test.requests()
        server.shutdown()
