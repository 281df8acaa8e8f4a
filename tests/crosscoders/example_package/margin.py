"""Whatever exceeds a fixed margin, as it is, with L1."""

import torch


class Margin:
    saelens, l1, by_rank, one_model_budget = "jumprelu", True, "never", False

    def check(self, k, latents):
        pass

    def parameters(self, latents, settings):
        return {}

    def candidates(self, pre, step):
        return (pre.flatten() > 0.1).nonzero().squeeze(-1)

    def value(self, pre, latent, step):
        return pre * (pre > 0.1), None

    def threshold(self, old, value, latent, step):
        return torch.full_like(old, 0.1)

    def infer(self, pre, threshold, k):
        return pre * (pre > threshold)
