"""Linear probes: what a step or a run will do, read off activations, held against the text."""
