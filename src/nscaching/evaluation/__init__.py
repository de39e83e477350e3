"""What a model is asked: rankings, classifications, predictions."""
