"""Attention of serving batches: what the suite `dynamic` compares."""
