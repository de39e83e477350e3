"""The application: each view as a page and as JSON, refusals in the same two forms."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from nscaching.errors import UserError
from nscaching.serve import pages, report, schema
from nscaching.serve.guard import Guard, Hosts
from nscaching.serve.parameters import read_all
from nscaching.serve.refusals import Refusal
from nscaching.serve.runs import ServedRun
from nscaching.serve.views import VIEWS, View
from nscaching.serve.views import Request as Asked

if TYPE_CHECKING:
    from starlette.types import Scope

SECONDS = 40.0  # of any request; slow work gives up earlier and goes on
FIELDS = 40  # parameters of an address
MAP, REPORT = (next(v for v in VIEWS if v.name == name) for name in ("map", "report"))


class Explorer:
    """The runs that are served, and the ways to answer."""

    def __init__(self, runs: list[ServedRun]) -> None:
        self.runs: Mapping[str, ServedRun] = {run.slug: run for run in runs}
        self.described = _json(schema.document())

    def routes(self) -> list[Route]:
        found = [
            Route("/openapi.json", self._document),
            Route("/static/{name}", self._file),
            Route("/r/{run}/map.svg", self._safely(self._drawing)),
        ]
        for view in VIEWS:
            as_json, page = partial(self._answer, view, True), partial(self._answer, view, False)
            found.append(Route("/api" + view.path.rstrip("/"), self._safely(as_json)))
            found.append(Route(view.path, self._safely(self._report if view is REPORT else page)))
        return found

    def _safely(self, work: Callable[[Request], Awaitable[Response]]) -> Any:  # noqa: ANN401
        """Return an endpoint that turns whatever goes wrong into a refusal."""

        async def answer(request: Request) -> Response:
            try:
                return await asyncio.wait_for(work(request), SECONDS)
            except Refusal as found:
                refusal = found
            except TimeoutError:
                refusal = Refusal("busy", "the answer takes too long; ask again")
            except UserError as error:  # such as a model that diverged
                refusal = Refusal("not_there", self._safe(str(error)))
            except Exception:  # a defect: the traceback is for who runs the service alone
                traceback.print_exc(file=sys.stderr)
                refusal = Refusal("internal", "a defect of the program; its output says more")
            return self.refuse(refusal, request.scope)

        return answer

    async def _answer(self, view: View, as_json: bool, request: Request) -> Response:
        form = view.form and not as_json
        asked = self.read(view, request.scope, form)
        if form and not _is_asked(asked.values):
            return self._page(view, asked, None)
        data = await view.work(asked)
        return _json_response(data) if as_json else self._page(view, asked, data)

    def read(self, view: View, scope: Scope, form: bool = False) -> Asked:
        text = scope["query_string"].decode("latin-1")
        try:
            given = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS)
        except ValueError:
            raise Refusal("bad_parameter", f"more than {FIELDS} parameters") from None
        name = scope["path_params"].get("run", "")
        asked = Asked(self.runs, name, read_all(view.parameters, given, form))
        if name:
            assert asked.run  # an unknown run is refused before anything else
        return asked

    def _page(self, view: View, asked: Asked, data: Any) -> Response:  # noqa: ANN401
        run = self.runs.get(asked.name)
        known = {"runs": list(self.runs), "run": run.slug if run else "", "served": run}
        given, address = dict(asked.values), pages.link(view.name, asked.name, **_said(view, asked))
        about = {"asked": given, "data": data, "address": address if data else ""}
        return HTMLResponse(pages.page(view.name, known | about))

    def refuse(self, refusal: Refusal, scope: Scope) -> Response:
        """Return a refusal as JSON, or as a page to who asks for one."""
        accept = dict(scope["headers"]).get(b"accept", b"")
        if scope["path"].startswith("/api") or b"text/html" not in accept:
            response = _json_response(refusal.to_dict(), refusal.status)
        else:
            name = scope.get("path_params", {}).get("run", "")
            run = name if name in self.runs else ""
            known = {"runs": list(self.runs), "run": run, "refusal": refusal, "address": ""}
            response = HTMLResponse(pages.page("refusal", known), refusal.status)
        if refusal.code == "method_not_allowed":
            response.headers["allow"] = "GET, HEAD"
        if refusal.code in ("too_many", "busy"):
            response.headers["retry-after"] = "2"
        return response

    async def missing(self, request: Request, _: Exception) -> Response:
        return self.refuse(Refusal("not_found", "no page has this address"), request.scope)

    def _safe(self, text: str) -> str:
        for run in self.runs.values():
            text = run.without_paths(text)
        return text

    async def _document(self, request: Request) -> Response:
        return Response(self.described, media_type="application/json")

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in pages.STATIC:
            return await self.missing(request, KeyError(name))
        content, kind, version = pages.static(name)
        headers = {"cache-control": "public, max-age=86400", "etag": f'"{version}"'}
        return Response(content, media_type=kind, headers=headers)

    async def _report(self, request: Request) -> Response:
        run = self.read(REPORT, request.scope).run
        content = await run.slowly(("report",), lambda: report.rendered(run), once=True)
        return HTMLResponse(content, headers={"content-security-policy": report.POLICY})

    async def _drawing(self, request: Request) -> Response:
        drawn = await MAP.work(self.read(MAP, request.scope))
        content = pages.render("map.svg", data=drawn)
        return Response(content, media_type="image/svg+xml")


def _said(view: View, asked: Asked) -> dict[str, Any]:
    """Return the parameters that are not the defaults."""
    usual = {each.name: each.default for each in view.parameters}
    return {name: asked.values[name] for name in usual if asked.values[name] != usual[name]}


def _is_asked(values: Mapping[str, Any]) -> bool:
    return bool(values["head"] or values["relation"] or values["tail"])


def _json(value: Any) -> bytes:  # noqa: ANN401
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def _json_response(value: Any, status: int = 200) -> Response:  # noqa: ANN401
    try:
        content = _json(value)
    except ValueError:
        content = _json(_finite(value))
    return Response(content, status, media_type="application/json")


def _finite(value: Any) -> Any:  # noqa: ANN401
    """Return a value without the numbers that JSON lacks, such as the loss of a failed training."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def new_app(
    runs: list[ServedRun], host: str, port: int, token: str, names: tuple[str, ...] = ()
) -> Guard:
    """Return the ASGI application for runs that are served on a host."""
    explorer = Explorer(runs)
    app = Starlette(routes=explorer.routes(), exception_handlers={404: explorer.missing})
    app.router.redirect_slashes = False
    return Guard(app, Hosts(host, names), token, port, explorer.refuse)
