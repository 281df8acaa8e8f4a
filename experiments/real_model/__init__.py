"""A real chat model learns a leak, and the verdict is asked what it makes of it."""
