"""Readers of triples, one file for each format."""
