"""Grades of steps: progress advantage, its baselines, and what the grades are good for."""
