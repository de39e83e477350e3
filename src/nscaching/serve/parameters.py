"""What a view is asked with: checked before any work, described in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nscaching.runs.escaping import shorten
from nscaching.serve.refusals import Refusal

LONGEST = 2000  # characters of a value


@dataclass(frozen=True)
class Parameter:
    """A parameter of the address."""

    name: str
    meaning: str
    kind: Literal["text", "number", "flag", "decimal"] = "text"
    required: bool = False
    default: Any = ""
    least: float = 0
    most: float = 0
    choices: tuple[str, ...] = ()

    def read(self, text: str) -> Any:  # noqa: ANN401
        """Return the value that a text says."""
        if self.kind == "number":
            return int(self._within(int(text) if text.lstrip("-").isdecimal() else None, text))
        if self.kind == "decimal":
            try:
                return self._within(float(text), text)
            except ValueError:
                return self._within(None, text)
        if self.kind == "flag":
            if text not in ("", "0", "1", "true", "false"):
                raise self.wrong(text, "1 or 0")
            return text in ("1", "true")
        if self.choices and text not in self.choices:
            raise self.wrong(text, "one of " + ", ".join(self.choices))
        return text

    def _within(self, value: float | None, text: str) -> float:
        if value is None or not self.least <= value <= self.most:
            raise self.wrong(text, f"a number from {self.least:g} to {self.most:g}")
        return value

    def wrong(self, text: str, wanted: str) -> Refusal:
        what = f"{self.name} must be {wanted}, not {shorten(text, 40)!r}"
        return Refusal("bad_parameter", what)

    def schema(self) -> dict[str, Any]:
        """Return what the OpenAPI document says of the values."""
        kinds = {"text": "string", "number": "integer", "flag": "boolean", "decimal": "number"}
        found: dict[str, Any] = {"type": kinds[self.kind]}
        if self.kind in ("number", "decimal"):
            found |= {"minimum": self.least, "maximum": self.most}
        if self.kind == "text":
            found |= {"maxLength": LONGEST} | ({"enum": [*self.choices]} if self.choices else {})
        return found if self.required else found | {"default": self.default}


def read_all(
    parameters: Sequence[Parameter], given: Sequence[tuple[str, str]], form: bool = False
) -> Mapping[str, Any]:
    """Return the values of all parameters; of an empty text the default.

    A ``form`` without values asks for them: then none is missing.
    """
    known = {parameter.name: parameter for parameter in parameters}
    values = {parameter.name: parameter.default for parameter in parameters}
    seen = set()
    for name, text in given:
        if name not in known:
            wanted = ", ".join(known) or "none"
            what = f"unknown parameter {shorten(name, 40)!r}; known: {wanted}"
            raise Refusal("bad_parameter", what)
        if name in seen:
            raise Refusal("bad_parameter", f"{name} is given twice")
        if len(text) > LONGEST:
            raise Refusal("bad_parameter", f"{name} is longer than {LONGEST:,} characters")
        seen.add(name)
        if text:
            values[name] = known[name].read(text)
    nothing = form and not any(text for _, text in given)
    for name, parameter in known.items():
        if parameter.required and values[name] == "" and not nothing:
            raise Refusal("bad_parameter", f"{name} is missing: {parameter.meaning}")
    return values
