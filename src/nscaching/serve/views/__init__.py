"""All views of the explorer."""

from nscaching.serve.views import cache, entity, finding, plane, question, relation
from nscaching.serve.views._base import Request, View

__all__ = ["VIEWS", "Request", "View"]

_ROOMS = (finding, entity, question, relation, cache, plane)
VIEWS: tuple[View, ...] = tuple(view for room in _ROOMS for view in room.VIEWS)
