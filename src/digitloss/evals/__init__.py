"""Evaluation: benchmarks, and the answers in what a model writes."""
