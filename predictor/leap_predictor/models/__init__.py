"""The models that a launcher serves, as arrays that numpy walks: the layered model, and trees."""
