"""Performance claims: each benchmark prints its ratio against a named peer, with spread."""
