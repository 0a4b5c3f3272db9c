"""What the judge found, as a page for people: `leap report` makes it from the judge's directory alone."""
