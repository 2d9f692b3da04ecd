"""The model server: the application on a loopback port, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from turncell.modelserver.app import build_app
from turncell.modelserver.backstage import Backstage
from turncell.modelserver.environment import cli_env
from turncell.modelserver.ledger import Request
from turncell.modelserver.scenario import Script, default_script

_HOST = "127.0.0.1"
_START_SECONDS = 10.0
_STOP_SECONDS = 5.0
_KEEP_ALIVE_SECONDS = 300  # a kept connection must not close just as the agent uses it again
_log = logging.getLogger(__name__)


class _Protocol(H11Protocol):
    """uvicorn's HTTP, with its log kept apart and the transport shown to the application."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.logger = _log
        self.access_log = False
        self.app_state = {**self.app_state, "transport": transport}
        super().connection_made(transport)


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it is up and does not wait for clients at the end."""

    def __init__(self, config: uvicorn.Config, backstage: Backstage) -> None:
        super().__init__(config)
        self._backstage = backstage
        self.settled = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.settled.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._backstage.closing = True
        for listener in self.servers:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # a stalled answer would never end by itself
        await super().shutdown(sockets)


class ModelServer:
    """A scripted Messages API on 127.0.0.1, for tests and demonstrations.

    A context manager; `start` and `stop` do the same. Attributes and methods may be used from
    any thread. `home` is the directory for the agent's own files, see `env`; records of requests
    keep `history_limit` characters of each string.
    """

    def __init__(
        self,
        script: Script | None = None,
        port: int = 0,
        *,
        home: Path | None = None,
        history_limit: int = 100_000,
    ) -> None:
        """Play `script` (None: the default script) on `port` (0: a free one) once started."""
        chosen = default_script() if script is None else script
        self._backstage = Backstage(chosen, history_limit)
        self._wanted_port = port
        self._home = home
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._port: int | None = None

    def start(self) -> None:
        """Listen. Raises `OSError` when the port is taken, `RuntimeError` when it is running."""
        if self._thread is not None:
            raise RuntimeError("this model server is already running")
        listener = socket.create_server((_HOST, self._wanted_port), backlog=128)
        self._port = listener.getsockname()[1]
        self._backstage.closing = False
        config = uvicorn.Config(
            build_app(self._backstage),
            loop="asyncio",
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
        )
        server = self._server = _Server(config, self._backstage)
        self._thread = threading.Thread(
            target=_run, args=(server, listener), name="turncell-model-server", daemon=True
        )
        self._thread.start()
        if not server.settled.wait(_START_SECONDS) or not server.started:
            self.stop()
            raise RuntimeError(f"the model server did not start within {_START_SECONDS:g} s")

    def stop(self) -> None:
        """Close every connection and end the thread, within 5 s; does nothing when not running."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)
        self._server = self._thread = self._port = None

    def join(self) -> None:
        """Wait until the server ends; `KeyboardInterrupt` gets through."""
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(0.5)

    def __enter__(self) -> ModelServer:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    @property
    def port(self) -> int:
        """The port. Raises `RuntimeError` when not running."""
        if self._port is None:
            raise RuntimeError("the model server is not running")
        return self._port

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end. Raises `RuntimeError` when not running."""
        return f"http://{_HOST}:{self.port}"

    @property
    def script(self) -> Script:
        """The script; set it at any time, requests that come later are answered by the new one."""
        return self._backstage.script

    @script.setter
    def script(self, script: Script) -> None:
        self._backstage.script = script

    @property
    def requests(self) -> list[Request]:
        """The recorded requests as they are now, in order of arrival."""
        return self._backstage.ledger.requests()

    def reset(self) -> None:
        """Forget the recorded requests and the failures already played."""
        self._backstage.reset()

    def wait_for(self, predicate: Callable[[Request], bool], timeout: float = 10.0) -> Request:
        """The first request that fits, waiting for it up to `timeout` seconds.

        Blocks the calling thread. Raises `TimeoutError`, which lists what was recorded.
        """
        return self._backstage.ledger.wait_for(predicate, timeout)

    def env(self, home: Path | None = None) -> dict[str, str]:
        """The environment that points the real agent CLI here, its files under `home`.

        `cli_env` says what each variable is for. `home` None takes the server's own. Raises
        `ValueError` when there is none, `RuntimeError` when the server is not running.
        """
        chosen = self._home if home is None else home
        if chosen is None:
            raise ValueError("env() needs a home directory for the agent's files")
        return cli_env(self.url, chosen)


def _run(server: _Server, listener: socket.socket) -> None:
    try:
        asyncio.run(server.serve(sockets=[listener]))
    finally:
        listener.close()
        server.settled.set()


def serve(
    port: int = 0,
    script: Script | None = None,
    on_ready: Callable[[ModelServer], None] | None = None,
) -> None:
    """Run a model server until it is interrupted by the keyboard; for the command line.

    `on_ready` is called once it listens. Raises `OSError` when the port is taken.
    """
    try:
        with ModelServer(script, port) as server:
            if on_ready is not None:
                on_ready(server)
            server.join()
    except KeyboardInterrupt:
        return  # the ordinary way to end it
