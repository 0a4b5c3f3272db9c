"""What a feature is: one meaning for the stream, the launcher and training."""
