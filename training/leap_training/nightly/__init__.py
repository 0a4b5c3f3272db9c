"""`leap nightly`: data set, fit, judgement on the next day, gate and publication, as one restartable command."""
