"""Graphs: where triples come from, and how they are indexed."""
