"""The paper's tables made again: trains what is missing and sets ours beside the paper's.

``asked``: what to make; ``task``: the paper's tables; ``cells``: the trainings behind a table;
``loop``: trains what is missing; ``store``: what was trained; ``unfinished``: what was begun;
``pace``: how long it takes; ``tables``: rows and summary; ``markdown``: the table as a file.
"""
