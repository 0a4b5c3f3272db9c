"""Reading history: from Redis, from a snapshot file, or through Feast's SDK."""
