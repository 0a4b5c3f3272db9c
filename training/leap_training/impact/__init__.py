"""What rankings changed: decisions joined with attempts that ended, shares, and the saving (see `docs/impact.md`)."""
