"""Does `check-server` find servers that draw another policy, and accuse no healthy one?"""
