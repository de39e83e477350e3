"""Graphs whose names do not fit into memory: names become ids on the disk, arrays are kept."""
