"""Where RL spent its KL: the additive split over step kinds, channels, token classes and turns."""
