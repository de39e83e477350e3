"""The mean norm of a mini-batch's gradient in each epoch: does it vanish?"""

from nscaching.errors import UserError
from nscaching.paper.figures._logs import Log, by_sampler, grouped, in_order
from nscaching.paper.figures._pages import Line, Page, Panel, Row, evenly

MOST_COLUMNS = 3


def pages(logs: list[Log], notes: list[str]) -> list[Page]:
    """Return one page with a panel for each scoring function and data set."""
    logs = in_order(logs)
    names = dict(zip(map(id, logs), by_sampler(logs), strict=True))
    panels: list[Panel] = []
    for (model, data), group in grouped(logs, lambda log: (log.model, log.data)).items():
        lines = [Line(names[id(log)], _rows(log), "epoch", "gradient_norm") for log in group]
        label = "" if len(panels) % MOST_COLUMNS else "mean ℓ2 norm of a batch's gradient"
        panels.append(Panel("epoch", label, lines, (f"{model} on {data}",), log_y=True))
    return [Page(panels, min(len(panels), MOST_COLUMNS), panel_height=3.2)]


def _rows(log: Log) -> list[Row]:
    records = log.epochs("gradient_norm")
    if not records:
        raise UserError(f"{log.where}: no gradient_norm yet; nscaching train records it each epoch")
    return [
        {**log.about(), "epoch": record["epoch"], "gradient_norm": record["gradient_norm"]}
        for record in evenly(records)
    ]
