#!/usr/bin/env python3
"""Tests whether a server conforms to the API.

    check.py URL KEY [--messages URL]        check.py http://127.0.0.1:8080 pet_live_...

It adds a few animals and messages, and expects nobody else to while it runs. Prints what differed, and then exits 1.
"""

import argparse
import contextlib
import http.client
import json
import re
import sys
from urllib.parse import urlsplit

JSON = "application/json"
MOST = 2**53 - 1  # The largest integer that all JSON parsers represent exactly.
DEPRECATED = {
    "Deprecation": "@1795132800",
    "Sunset": "Thu, 05 Dec 2030 00:00:00 GMT",
    "Link": r'<[^>]+/docs/deprecations>; rel="deprecation", <[^>]+/v1/pets>; rel="successor-version"',
}
CHALLENGE = 'Bearer realm="petstore"'
REFUSED = CHALLENGE + ', error="invalid_token"'
wrong = checked = 0


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Door:
    def __init__(self, url, key):
        parts = urlsplit(url if "://" in url else f"http://{url}")
        self.key, self.address = key, (parts.hostname, parts.port)

    def ask(self, method, path, body=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        if body is not None:
            headers.setdefault("Content-Type", JSON)
        body = json.dumps(body, ensure_ascii=False) if isinstance(body, dict) else body
        # A new connection, because a server may close one whose body it has not read.
        with contextlib.closing(http.client.HTTPConnection(*self.address, timeout=10)) as connection:
            connection.request(method, "/v1" + path, body and body.encode(), headers)
            return Answer(connection.getresponse())

    def asks(self, method, path, body=None, **headers):
        """Sends a request with the API key."""
        return self.ask(method, path, body, **{"Authorization": f"Bearer {self.key}", **headers})


def expect(what, *differences):
    """Counts a check, and prints differences between actual and expected values."""
    global wrong, checked
    checked += 1
    differences = [each for each in differences if each]
    if differences:
        wrong += 1
        print(f"WRONG {what}")
        for name, came, expected in differences:
            print(f"    {name}\n      - expected {expected!r}\n      + came     {came!r}")


def same(name, came, expected):
    return None if came == expected else (name, came, expected)


def matches(name, came, pattern):
    return None if re.fullmatch(pattern, came or "") else (name, came, pattern)


def every_answer(answer, status):
    kind = answer.headers.get("Content-Type", "").lower().replace(" ", "")
    return [
        same("status", answer.status, status),
        None if kind in (JSON, JSON + ";charset=utf-8") else ("Content-Type", kind, JSON),
        matches("X-Request-Id", answer.headers.get("X-Request-Id"), "[!-~]{1,128}"),
    ]


def expect_body(what, answer, status, body, **headers):
    named = [matches(name, answer.headers.get(name), pattern) for name, pattern in headers.items()]
    expect(what, *every_answer(answer, status), same("body", answer.body.decode(), body), *named)


def expect_error(what, answer, status, code, deprecated=False, challenge=None):
    body = answer.json()
    shape = [(key, type(value).__name__) for key, value in body.items()] if isinstance(body, dict) else answer.body
    differences = [same("shape", shape, [("code", "str"), ("message", "str"), ("status", "int")])]
    if not differences[0]:
        differences += [same("code", body["code"], code), same("status in the body", body["status"], status)]
    if challenge:
        differences.append(same("WWW-Authenticate", answer.headers.get("WWW-Authenticate"), challenge))
    if deprecated:
        differences += [matches(name, answer.headers.get(name), re.escape(value) if name != "Link" else value)
                        for name, value in DEPRECATED.items()]
    expect(what, *every_answer(answer, status), *differences)


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def check_adding(store):
    added = []
    for sent, kept in [
        ({"name": "Rex", "categoryId": 3}, ("Rex", 3, "available")),
        ({"status": "sold", "categoryId": -1, "name": ' "ß🦊\\</b> \u2028'}, (' "ß🦊\\</b> \u2028', -1, "sold")),
        ({"name": "ä" * 255, "categoryId": MOST, "status": "pending", "id": 7}, ("ä" * 255, MOST, "pending")),
        ('{"name":"\\u0041","categoryId":3.0}', ("A", 3, "available")),
    ]:
        answer = store.asks("POST", "/pets", sent)
        pet = answer.json()
        id = pet.get("id") if isinstance(pet, dict) else None
        body = compact(dict(zip(("id", "name", "categoryId", "status"), (id, *kept))))
        expect_body(f"POST /pets {sent}", answer, 201, body, Location=rf"http://[^ ]+/v1/pets/{id}")
        added.append((id, body))
    ids = [id for id, _ in added]
    expect("ids are one apart", same("ids", ids, list(range(ids[0] or 0, (ids[0] or 0) + len(ids)))))

    for sent, code in [
        ("", "invalid_json"), ("{", "invalid_json"), ("[]", "invalid_json"), ("null", "invalid_json"),
        ({"categoryId": 3}, "missing_field"), ({"name": "Rex"}, "missing_field"), ({}, "missing_field"),
        ({"name": "", "categoryId": 3}, "invalid_value"), ({"name": " \t", "categoryId": 3}, "invalid_value"),
        ({"name": "a\u0085", "categoryId": 3}, "invalid_value"), ({"name": "a\n", "categoryId": 3}, "invalid_value"),
        ({"name": "ä" * 256, "categoryId": 3}, "invalid_value"), ({"name": 3, "categoryId": 3}, "invalid_value"),
        ({"name": None, "categoryId": 3}, "invalid_value"), ({"name": "Rex", "categoryId": "3"}, "invalid_value"),
        ({"name": "Rex", "categoryId": 3.5}, "invalid_value"), ({"name": "Rex", "categoryId": True}, "invalid_value"),
        ({"name": "Rex", "categoryId": None}, "invalid_value"), ({"name": "Rex", "categoryId": 2**64}, "invalid_value"),
        ({"name": "Rex", "categoryId": 3, "status": "Sold"}, "invalid_value"),
        ({"name": "Rex", "categoryId": 3, "status": None}, "invalid_value"),
    ]:  # fmt: skip
        expect_error(f"POST /pets {str(sent)[:60]}", store.asks("POST", "/pets", sent), 400, code)
    return added


def check_getting(store, added):
    literal = {name: re.escape(value) if name != "Link" else value for name, value in DEPRECATED.items()}
    for id, body in added:
        expect_body(f"GET /pets/{id}", store.asks("GET", f"/pets/{id}"), 200, body, **literal)
    for id in (0, -1, added[-1][0] + 1000, "abc", "1.0", 2**64, "%20"):
        expect_error(f"GET /pets/{id}", store.asks("GET", f"/pets/{id}"), 404, "not_found", deprecated=True)
    expect_error("GET /pets/1 without a key", store.ask("GET", "/pets/1"), 401, "missing_api_key", True, CHALLENGE)


def check_listing(store, added):
    before = added[0][0] - 1
    bodies = [body for _, body in added]
    everything = store.asks("GET", f"/pets?after={before}")
    expect_body("GET /pets?after", everything, 200, f"[{','.join(bodies)}]", Link="")
    first = store.asks("GET", f"/pets?limit=3&after={before}")
    link = rf'<http://[^ ]+/v1/pets\?limit=3&after={added[2][0]}>; rel="next"'
    expect_body("GET /pets?limit&after", first, 200, f"[{','.join(bodies[:3])}]", Link=link)
    only = store.asks("GET", f"/pets?status=available&limit=1&after={before}")
    link = rf'<http://[^ ]+/v1/pets\?limit=1&status=available&after={added[0][0]}>; rel="next"'
    expect_body("GET /pets?status&limit&after", only, 200, f"[{bodies[0]}]", Link=link)
    full = store.asks("GET", f"/pets?limit=4&after={before}")
    expect_body("a last page that is full", full, 200, f"[{','.join(bodies)}]", Link="")
    after = f"/pets?after={added[-1][0]}"
    expect_body("GET /pets after the last", store.asks("GET", after), 200, "[]", Link="")
    for query, code in [
        ("limit=0", "invalid_value"), ("limit=101", "invalid_value"), ("limit=-1", "invalid_value"),
        ("limit=", "invalid_value"), ("limit=abc", "invalid_value"), ("limit=1.5", "invalid_value"),
        ("status=Sold", "invalid_value"), ("status=", "invalid_value"), ("after=x", "invalid_value"),
        ("colour=red", "unknown_parameter"),
    ]:  # fmt: skip
        expect_error(f"GET /pets?{query}", store.asks("GET", f"/pets?{query}"), 400, code)


def check_messages(messages):
    for text in ("Hi", 'a\tb\r\n"ß🦊\\', "x" * 10_000):
        answer = messages.asks("POST", "/messages", {"message": text})
        sent = answer.json() if isinstance(answer.json(), dict) else {}
        id, at = sent.get("id"), sent.get("createdAt")
        body = compact({"id": id, "message": text, "status": "queued", "createdAt": at})
        expect(
            f"POST /messages {text[:20]!r}", *every_answer(answer, 202), same("body", answer.body.decode(), body),
            matches("id", id, "msg_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}"),
            matches("createdAt", at, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"),
        )  # fmt: skip
    for sent, code in [
        ("{", "invalid_json"), ("[]", "invalid_json"), ({}, "missing_field"), ({"message": ""}, "invalid_value"),
        ({"message": "\r\n"}, "invalid_value"), ({"message": 3}, "invalid_value"), ({"message": None}, "invalid_value"),
        ({"message": "a\0"}, "invalid_value"), ({"message": "x" * 10_001}, "invalid_value"),
    ]:  # fmt: skip
        expect_error(f"POST /messages {str(sent)[:60]}", messages.asks("POST", "/messages", sent), 400, code)


def check_credentials(store, messages):
    for listener, method, path in [
        (store, "GET", "/pets"), (store, "POST", "/pets"), (store, "GET", "/pets/abc"), (messages, "POST", "/messages"),
    ]:  # fmt: skip
        for credential, code, challenge in [
            (None, "missing_api_key", CHALLENGE), ("Basic abc", "missing_api_key", CHALLENGE),
            ("Bearer", "invalid_api_key", REFUSED), ("Bearer abc", "invalid_api_key", REFUSED),
            (f"Bearer {store.key[:-1]}", "invalid_api_key", REFUSED),
            (f"Bearer {store.key}x", "invalid_api_key", REFUSED),
        ]:  # fmt: skip
            # The body is not JSON, but without a key, only the missing key is reported.
            body = "{" if method == "POST" else None
            answer = listener.ask(method, path, body, Authorization=credential)
            expect_error(f"{method} {path} with {str(credential)[:12]}", answer, 401, code, challenge=challenge)
        answer = listener.ask("GET", "/nothing")
        expect_error("GET /nothing", answer, 404, "not_found")
    answer = store.ask("GET", "/pets?limit=1", Authorization=f"bEARER {store.key}")
    expect("the scheme's case does not matter", same("status", answer.status, 200))


def check_request_ids(store):
    given = store.asks("GET", "/pets?limit=1", X_Request_Id="a-1!~")
    expect("the caller's request id", same("X-Request-Id", given.headers.get("X-Request-Id"), "a-1!~"))
    for odd in ("a b", "x" * 129):
        ids = [store.asks("GET", "/pets/0", X_Request_Id=odd).headers.get("X-Request-Id") for _ in range(2)]
        expect("an odd request id", None if len({*ids, odd}) == 3 else ("X-Request-Id", ids, "two new ones"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", help="URL of the server, for instance http://127.0.0.1:8080")
    parser.add_argument("key")
    parser.add_argument("--messages", help="where messages are sent, if elsewhere")
    options = parser.parse_args()

    store, messages = Door(options.url, options.key), Door(options.messages or options.url, options.key)
    added = check_adding(store)
    if any(id is None for id, _ in added):
        sys.exit("check: not every animal could be added, so the rest can't be checked")
    check_getting(store, added)
    check_listing(store, added)
    check_messages(messages)
    check_credentials(store, messages)
    check_request_ids(store)
    print(f"{checked - wrong} of {checked} answers are right")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    try:
        main()
    except (OSError, http.client.HTTPException) as error:
        sys.exit(f"check: no answer: {error!r}")
