"""Training: data sets, the ranking model, its evaluation and publication."""
