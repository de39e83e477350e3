"""The paper's tables, trained again and set beside the published values.

``selection``: which cells to make; ``plan``: the trainings that the cells need; ``loop``: trains
what is missing; ``cell_training``: trains one cell; ``results``: lines of finished trainings;
``table``: rows, summaries and the page.
"""
