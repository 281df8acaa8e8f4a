"""See the room's purpose in the README."""
