"""Whether latents that a diff reports come back from fresh first weights."""
