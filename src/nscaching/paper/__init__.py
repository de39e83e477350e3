"""The paper: its published results, its settings, its tables and its figures."""
