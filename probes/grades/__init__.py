"""Grades of steps: progress advantage, its baselines, and what the grades are good for.

`progress_advantage` grades trajectories; `running` is `forensics grade`. Light at import.
"""
