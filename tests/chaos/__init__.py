"""The parts of the chaos program, `tests/faults/chaos.py`: events, trouble, and an oracle that knows no fold."""
