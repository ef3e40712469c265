"""A TCP proxy in front of PostgreSQL that tests let go wrong, while connections are open.

It runs on a thread of its own. What goes wrong is said by rules, for all connections or only for
those of an application name, for all requests or only for those that contain some text.
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, quote, urlsplit

_CHUNK = 65_536
_NEGOTIATE = (80877103, 80877104)  # a client asks for SSL, or for GSSAPI encryption
_CANCEL = 80877102
_READY_FOR_QUERY = b"Z\x00\x00\x00\x05"
# What psycopg calls a prepared statement: in the message that brings its text, and in others.
_PARSE = re.compile(rb"P.{4}(_pg3_\d+)\x00([^\x00]*)\x00", re.DOTALL)
_NAMED = re.compile(rb"(_pg3_\d+)\x00")


class Mode(StrEnum):
    """What happens to bytes that a rule catches."""

    DELAY = "delay"
    """They arrive, later."""
    BLACK_HOLE = "black hole"
    """They are swallowed, in both directions and for ever; the connection stays open."""
    CUT = "cut"
    """The request never reaches the server, and the connection ends."""
    DROP_REPLY = "drop reply"
    """The server does as asked; its answer is swallowed, and the connection ends."""


@dataclass(slots=True)
class Rule:
    """Catches what comes from connections whose application name ends in ``application``."""

    mode: Mode
    application: str = ""
    containing: bytes = b""
    """Only requests with this text, or which run a prepared statement that has it."""
    times: int | None = None
    seconds: float = 0.0
    """How much later, for ``DELAY``."""
    caught: int = 0

    def catches(self, application: str, data: bytes) -> bool:
        if self.times is not None and self.caught >= self.times:
            return False
        if not application.endswith(self.application) or self.containing not in data:
            return False
        self.caught += 1
        return True


class Proxy:
    """Listens on a free port of 127.0.0.1; a context manager. ``url`` leads through it."""

    def __init__(self, url: str) -> None:
        self._rules: list[Rule] = []
        self._connections: set[_Connection] = set()
        self.accepted: Counter[str] = Counter()
        """Connections by application name, those that failed at once included."""
        self.port = 0
        self.lead_to(url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server: asyncio.Server = self._run(self._listen())

    def lead_to(self, url: str) -> None:
        """Connections that are opened from now lead there."""
        self.upstream_url = url
        parts = urlsplit(url)
        self._host = parts.hostname or parse_qs(parts.query).get("host", ["127.0.0.1"])[0]
        self._server_port = parts.port or 5432

    @property
    def url(self) -> str:
        """The upstream's URL, through the proxy."""
        parts = urlsplit(self.upstream_url)
        user = quote(parts.username or "", safe="")
        if parts.password:
            user += f":{parts.password}"
        return f"{parts.scheme}://{user}@127.0.0.1:{self.port}{parts.path}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def add(self, mode: Mode, **options: Any) -> Rule:
        """From now, also on connections that are open; ``options`` are those of ``Rule``."""
        rule = Rule(mode, **options)
        self._rules = [*self._rules, rule]
        if mode is Mode.BLACK_HOLE and not rule.containing:
            for connection in list(self._connections):
                rule.caught += connection.swallow(rule.application)
        return rule

    def clear(self) -> None:
        """Everything passes again, but on connections that a black hole has."""
        self._rules = []

    def cut_all(self) -> int:
        """End every connection now; how many there were."""
        count: int = self._run(self._cut_all())
        return count

    def refuse(self) -> None:
        """Accept no more connections and end those there are, as a host whose server is gone."""
        self._run(self._stop_listening())
        self.cut_all()

    def accept(self) -> None:
        """Listen again on the same port."""
        self._server = self._run(self._listen())

    @property
    def open_count(self) -> int:
        """Connections that are open now."""
        return len(self._connections)

    def close(self) -> None:
        """End everything, and the thread."""
        if self._loop.is_closed():
            return
        self.refuse()
        self._run(self._all_ended())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def caught_by(self, application: str, data: bytes) -> Rule | None:
        """The first rule that catches this request; it counts."""
        for rule in self._rules:
            if rule.catches(application, data):
                return rule
        return None

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _stop_listening(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, reader, writer)
        self._connections.add(connection)
        try:
            await connection.run(self._host, self._server_port)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            connection.cut()
            self._connections.discard(connection)

    async def _cut_all(self) -> int:
        connections = list(self._connections)
        for connection in connections:
            connection.cut()
        return len(connections)

    async def _all_ended(self) -> None:
        if tasks := [connection.task for connection in self._connections]:
            await asyncio.wait(tasks)


class _Connection:
    """One client and its connection to the server."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._server_writer: asyncio.StreamWriter | None = None
        self._application = ""
        self._prepared: dict[bytes, bytes] = {}
        self._is_swallowing = False
        self._is_reply_dropped = False
        self._ended = asyncio.Event()
        task = asyncio.current_task()
        assert task is not None
        self.task = task

    async def run(self, host: str, port: int) -> None:
        """Until one of the sides ends, or a rule does it."""
        if host.startswith("/"):
            server_reader, server = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            server_reader, server = await asyncio.open_connection(host, port)
        self._server_writer = server
        first = await self._startup()
        self._proxy.accepted[self._application] += 1
        pumps = [
            asyncio.ensure_future(self._to_server(first, server)),
            asyncio.ensure_future(self._to_client(server_reader)),
            asyncio.ensure_future(self._ended.wait()),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    def swallow(self, application: str) -> bool:
        """From now nothing passes, if this is a connection of that name; whether it is."""
        if self._application.endswith(application):
            self._is_swallowing = True
            return True
        return False

    def cut(self) -> None:
        """End both sides at once; a reader on either sees it."""
        self._ended.set()
        for writer in (self._writer, self._server_writer):
            if writer is not None:
                writer.transport.abort()

    async def _startup(self) -> bytes:
        """The client's first packet, which has its name; encryption is declined on the way."""
        while True:
            head = await self._reader.readexactly(8)
            length, code = struct.unpack("!II", head)
            if code in _NEGOTIATE:
                self._writer.write(b"N")
                continue
            body = await self._reader.readexactly(length - 8)
            if code == _CANCEL:
                self._application = "cancel"
            else:
                words = body.split(b"\x00")
                names = dict(zip(words[::2], words[1::2], strict=False))
                self._application = names.get(b"application_name", b"").decode()
            return head + body

    async def _to_server(self, data: bytes, server: asyncio.StreamWriter) -> None:
        while data:
            asked = data + self._texts_in(data)
            rule = None if self._is_swallowing else self._proxy.caught_by(self._application, asked)
            if rule is not None and rule.mode is Mode.CUT:
                return
            if rule is not None and rule.mode is Mode.DELAY:
                await asyncio.sleep(rule.seconds)
            if rule is not None and rule.mode is Mode.BLACK_HOLE:
                self._is_swallowing = True
            if rule is not None and rule.mode is Mode.DROP_REPLY:
                self._is_reply_dropped = True
            if not self._is_swallowing:
                server.write(data)
                await server.drain()
            data = await self._reader.read(_CHUNK)
        if self._is_swallowing:
            await asyncio.Event().wait()  # the server learns nothing of the client's end

    def _texts_in(self, data: bytes) -> bytes:
        """The texts of the prepared statements that it names."""
        self._prepared.update(_PARSE.findall(data))
        return b"".join(self._prepared.get(name, b"") for name in _NAMED.findall(data))

    async def _to_client(self, reader: asyncio.StreamReader) -> None:
        end = b""
        while data := await reader.read(_CHUNK):
            end = (end + data)[-6:]
            if self._is_reply_dropped and end[:-1] == _READY_FOR_QUERY:
                return  # all of the request is done
            if not self._is_swallowing and not self._is_reply_dropped:
                self._writer.write(data)
                await self._writer.drain()
        if self._is_swallowing:
            await asyncio.Event().wait()
