"""The verb ``serve``."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import quote

from nscaching.cli.tables import note, print_json, say
from nscaching.cli.verbs._base import Json, RunPaths, Trust
from nscaching.errors import UserError

TOKEN = "NSCACHING_TOKEN"  # noqa: S105  (the name of a variable)
NEEDED = ("starlette", "threadpoolctl", "uvicorn")
EVERY = ("0.0.0.0", "::")  # noqa: S104  (all addresses of this machine: no address to ask at)
LEAST = 12  # characters of a token


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Explore runs in the browser, and ask them as JSON; read-only.

    nscaching serve runs/x
    """

    paths: RunPaths
    host: str = "127.0.0.1"
    """Address to listen on. Any but this machine's own asks for a token: that of the variable
    NSCACHING_TOKEN, or else a new one."""
    port: int = 8765
    """Port to listen on; 0: any free one."""
    names: tuple[str, ...] = ()
    """More names by which other machines may ask, such as explorer.example.org."""
    trust: Trust = False
    json: Json = False

    def run(self) -> None:
        if not self.paths:
            raise UserError("serve needs a run folder: nscaching serve runs/x")
        if not all(map(find_spec, NEEDED)):
            raise UserError("nscaching serve needs more: pip install nscaching[serve]")
        from nscaching.cli.progress import when_slow
        from nscaching.serve import server
        from nscaching.serve.app import new_app
        from nscaching.serve.guard import is_loopback
        from nscaching.serve.runs import open_runs

        token = "" if is_loopback(self.host) else _token()
        with server.listen(self.host, self.port) as listening:
            with when_slow("opening runs") as bar:
                many = len(self.paths)
                opened = lambda done: bar.show(done, many, "runs")  # noqa: E731
                runs = open_runs(self.paths, self.trust, opened)
            port = listening.getsockname()[1]
            app = new_app(runs, self.host, port, token, (self._name, *self.names))
            server.run(app, listening, lambda: self._say(port, token, [run.slug for run in runs]))
        note("ended")
        if any(run.working for run in runs):  # a map may take minutes, and nobody waits for it
            sys.stdout.flush()
            os._exit(0)
        for run in runs:
            run.close()

    @property
    def _name(self) -> str:
        """The name by which others ask."""
        return socket.gethostname() if self.host in EVERY else self.host

    def _say(self, port: int, token: str, runs: list[str]) -> None:
        host = f"[{self._name}]" if ":" in self._name else self._name
        if self.json:  # for a program that starts this one
            print_json({"host": self.host, "port": port, "runs": runs, "token": token})
        else:
            if token:
                say("other machines can reach this service; they need the token", f"token: {token}")
                say(f"link:  http://{host}:{port}/login?token={quote(token, safe='')}")
            say(f"serving {', '.join(runs)} at http://{host}:{port}/", "Ctrl-C ends")
        sys.stdout.flush()


def _token() -> str:
    given = os.environ.get(TOKEN, "")
    if given and len(given) < LEAST:
        raise UserError(f"{TOKEN} has {len(given)} characters; {LEAST} or more are needed")
    return given or secrets.token_urlsafe(24)
