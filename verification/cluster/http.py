"""HTTP requests to the cluster's processes on loopback."""

import base64
import json
import urllib.error
import urllib.request


def request(port, path, *, method="GET", body=None, user=None, key=None, timeout=2):
    """Returns the status and the body of any response. Raises OSError if there is none."""
    headers = {"Content-Type": "application/json"}
    if user:
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(user).encode()).decode()
    if key:
        headers["Authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method)
    try:
        with NO_PROXY.open(call, timeout=timeout) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


# Ignores proxies from the environment.
NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
