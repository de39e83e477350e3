"""What is refused, with the status of HTTP and a code for programs."""

from __future__ import annotations

from nscaching.serve.shapes import Named

CODES = {
    "bad_parameter": (400, "a parameter is missing, unknown or has a wrong value"),
    "bad_request": (400, "the request is not one of this service"),
    "not_signed_in": (401, "the token is missing or wrong"),
    "unknown_name": (404, "no entity or relation has this name; choices are near it"),
    "ambiguous_name": (404, "several have this label; choices are their names"),
    "unknown_run": (404, "no run has this name"),
    "not_found": (404, "no page has this address"),
    "not_there": (404, "the run does not hold what is asked for"),
    "method_not_allowed": (405, "only GET and HEAD are answered"),
    "too_slow": (408, "the request did not arrive in time"),
    "too_long": (414, "the address is too long"),
    "headers_too_long": (431, "the headers are too long"),
    "body_not_allowed": (413, "a request here has no body"),
    "wrong_host": (421, "the host name is not one of this service"),
    "too_many": (429, "this client asks too often"),
    "busy": (503, "the answer takes too long, or too many wait: ask again"),
    "internal": (500, "a defect of the program"),
}
"""Code → status, meaning."""


class Refusal(Exception):  # noqa: N818  (most are no errors of the program)
    """An answer other than the one that was asked for."""

    def __init__(
        self, code: str, message: str, choices: list[Named] | None = None, kind: str = ""
    ) -> None:
        """Refuse; ``choices`` are what may be meant: names of a kind, such as "relation"."""
        super().__init__(message)
        self.code, self.message, self.choices, self.kind = code, message, choices or [], kind
        self.status = CODES[code][0]

    def to_dict(self) -> dict[str, object]:
        about = {"code": self.code, "message": self.message, "status": self.status}
        return {"error": about | {"choices": self.choices}}
