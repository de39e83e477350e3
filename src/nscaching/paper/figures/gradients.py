"""The mean norm of a mini-batch's gradient in each epoch: does it vanish?"""

from nscaching.errors import UserError
from nscaching.paper.figures._logs import Log, by_sampler, grouped, in_order
from nscaching.paper.figures._pages import Line, Page, Panel

MOST_COLUMNS = 3
NORM = "gradient_norm"
COLUMNS = {"epoch": "epoch", NORM: NORM}


def pages(logs: list[Log], notes: list[str]) -> list[Page]:
    """Return one page with a panel for each scoring function and data set."""
    for log in logs:
        if not log.epochs(NORM):
            raise UserError(f"{log.where}: no {NORM} yet; nscaching train records it each epoch")
    names = by_sampler(logs)
    panels: list[Panel] = []
    for (model, data), group in grouped(in_order(logs), lambda log: (log.model, log.data)).items():
        lines = [
            Line(names[log], log.points(log.epochs(NORM), COLUMNS), "epoch", NORM) for log in group
        ]
        label = "" if len(panels) % MOST_COLUMNS else "mean ℓ2 norm of a batch's gradient"
        panels.append(Panel("epoch", label, lines, (f"{model} on {data}",), log_y=True))
    return [Page(panels, min(len(panels), MOST_COLUMNS), panel_height=3.2)]
