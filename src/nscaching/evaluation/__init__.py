"""What a model is asked: rankings, classifications, predictions, one file for each."""
