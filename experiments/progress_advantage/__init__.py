"""What progress advantage is worth: the identity in a solvable world, and organisms."""
