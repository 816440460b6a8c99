"""An issuer of opaque tokens: metadata, client credentials, and introspection (RFC 7662)."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote_plus
from uuid import uuid4

from mcp.client.auth import TokenStorage
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

SECRET = "a secret"
"""The password of every client."""


@dataclass
class Issuer:
    """What it has given out, and for which resources."""

    url: str
    active: dict[str, dict] = field(default_factory=dict)
    resources: list[str] = field(default_factory=list)
    broken: bool = False
    """Whether it answers everything with HTTP 500."""
    next_lifetime: float = 3600
    """Seconds for which the next token is valid; the tokens after it are valid for an hour."""
    last_end: float = 0
    """When the newest token ends."""

    def token(self, subject: str) -> str:
        """Returns a new token for this subject."""
        token = str(uuid4())
        self.last_end = time.time() + self.next_lifetime
        self.next_lifetime = 3600
        self.active[token] = {"active": True, "sub": subject, "exp": self.last_end}
        return token

    def revoke(self) -> None:
        """Revokes every token."""
        self.active.clear()

    def auth_section(self, secret_file: str) -> str:
        """Returns an `[auth]` section that asks it, every time."""
        return f"""
[auth]
mode = "introspect"
issuer = "{self.url}"
introspection_endpoint = "{self.url}/introspect"
audience = "any"
client_id = "taskgate"
client_secret = {{ file = "{secret_file}" }}
cache = "1ms"
"""

    def login(self, url: str, subject: str) -> ClientCredentialsOAuthProvider:
        """The SDK's OAuth client, which finds the issuer by itself."""
        return ClientCredentialsOAuthProvider(
            url, Memory(), client_id=subject, client_secret=SECRET, issuer=self.url
        )

    def answer(self, path: str, form: dict[str, list[str]], authorization: str) -> dict | None:
        if path == "/.well-known/oauth-authorization-server":
            return {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "response_types_supported": ["code"],
                "grant_types_supported": ["client_credentials"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            }
        basic = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        name, _, secret = (unquote_plus(part) for part in basic.partition(":"))
        if secret != SECRET:
            return None
        if path == "/token":
            self.resources += form["resource"]
            return {"access_token": self.token(name), "token_type": "Bearer"}
        return self.active.get(form["token"][0], {"active": False})


class Memory(TokenStorage):
    """Keeps a client's token while the test runs."""

    def __init__(self) -> None:
        self._token = None

    async def get_tokens(self):
        return self._token

    async def set_tokens(self, tokens) -> None:
        self._token = tokens

    async def get_client_info(self):
        return None

    async def set_client_info(self, client_info) -> None:
        pass


@contextmanager
def issuer() -> Iterator[Issuer]:
    """An issuer on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            answer = running.answer(
                self.path, parse_qs(body), self.headers.get("authorization", "")
            )
            document = json.dumps(answer or {"error": "invalid_client"}).encode()
            status = 401 if answer is None else 200
            self.send_response(500 if running.broken else status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(document)))
            self.end_headers()
            self.wfile.write(document)

        do_POST = do_GET

        def log_message(self, *arguments) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running = Issuer(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
