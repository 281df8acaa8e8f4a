"""How often audits accuse a healthy run, and what they say while a shortcut is being learned."""
