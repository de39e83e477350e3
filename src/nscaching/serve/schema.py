"""The OpenAPI document: from the views, their parameters and the shapes of their answers."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from nscaching import __version__
from nscaching.serve.refusals import CODES
from nscaching.serve.views import VIEWS, View

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
REF = "#/components/schemas/"


def document() -> dict[str, Any]:
    shapes = {shape.__name__: shape for view in VIEWS for shape in _shapes(view.shape)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "nscaching serve",
            "version": __version__,
            "description": "Trained knowledge-graph embeddings, read-only. Every page has the "
            "same address without /api.",
        },
        "paths": {"/api" + view.path.rstrip("/"): {"get": _operation(view)} for view in VIEWS},
        "components": {
            "schemas": {name: _object(shape) for name, shape in sorted(shapes.items())}
            | {"Error": _error()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(view: View) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {
            "name": each.name,
            "in": "query",
            "description": each.meaning,
            "required": each.required,
            "schema": each.schema(),
        }
        for each in view.parameters
    ]
    if "{run}" in view.path:
        of_path = {"description": "the name of a run", "required": True}
        run = {"name": "run", "in": "path", **of_path, "schema": {"type": "string"}}
        parameters.insert(0, run)
    answer = {"description": view.summary, "content": _json(REF + view.shape.__name__)}
    refusals: dict[str, list[str]] = {}
    for code, (status, meaning) in CODES.items():
        refusals.setdefault(str(status), []).append(f"{code}: {meaning}")
    errors = {
        status: {"description": "; ".join(meanings), "content": _json(REF + "Error")}
        for status, meanings in refusals.items()
    }
    return {
        "operationId": view.name,
        "summary": view.summary,
        "parameters": parameters,
        "responses": {"200": answer, **errors},
    }


def _json(reference: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": reference}}}


def _error() -> dict[str, Any]:
    named = {"type": "array", "items": {"$ref": REF + "Named"}}
    inside = {
        "type": "object",
        "properties": {
            "code": {"type": "string", "enum": list(CODES)},
            "message": {"type": "string"},
            "status": {"type": "integer"},
            "choices": named | {"description": "what may be meant"},
        },
        "required": ["code", "message", "status", "choices"],
    }
    return {"type": "object", "properties": {"error": inside}, "required": ["error"]}


def _shapes(hint: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield the shapes that a type holds, itself first."""
    if is_typeddict(hint):
        yield hint
        for each in get_type_hints(hint).values():
            yield from _shapes(each)
    for each in get_args(hint):
        yield from _shapes(each)


def _object(shape: Any) -> dict[str, Any]:  # noqa: ANN401
    hints = get_type_hints(shape)
    return {
        "type": "object",
        "description": (shape.__doc__ or "").strip(),
        "properties": {name: _of(hint) for name, hint in hints.items()},
        "required": list(hints),
    }


def _of(hint: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the JSON schema of a type."""
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    if is_typeddict(hint):
        return {"$ref": REF + hint.__name__}
    origin = get_origin(hint)
    if origin is list:
        return {"type": "array", "items": _of(get_args(hint)[0])}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_of(each) for each in get_args(hint)]}
    return {"type": "object"} if origin is dict else {}
