"""The stream: completion events from Kafka into the online store and the archive."""
