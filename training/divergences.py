"""Estimators of the KL between two policies from the tokens that were drawn, and
the term that a loss takes from one.

The derivative of an estimator of the KL is not the gradient of the KL
(2506.09477): that of k1 has mean 0, that of k3 follows the other direction.
Times the ratio to the old policy both are right (2512.02556, TRL's default), k2
is right as it stands; see `kl_term`.

Tensors hold log-probabilities of drawn tokens, of any one shape.
"""

import torch

LARGEST_LOG_RATIO = 20.0  # nats; a ratio of half a billion


def kl_term(
    now: torch.Tensor, old: torch.Tensor, reference: torch.Tensor, kind: str, corrected: bool
) -> torch.Tensor:
    """What is added to each token's loss for the divergence KL(now ||
    reference), draws being from the old policy.

    `kind`: the estimator. `corrected`: k1 and k3 times now/old with its gradient, which makes
    value and gradient unbiased; k2 times now/old without, since its own
    derivative is the unbiased one. Else: the bare estimator.
    """
    estimate = KL_ESTIMATORS[kind](now, reference)
    if not corrected:
        return estimate
    ratio = within(now - old).exp()
    return estimate * (ratio.detach() if kind == "k2" else ratio)


def k1(now: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """`log p - log q`: unbiased for KL(p || q) under draws from p."""
    return now - reference


def k2(now: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """`(log p - log q)^2 / 2`: biased, low variance; its derivative is an
    unbiased gradient of KL(p || q).
    """
    return (now - reference).square() / 2


def k3(now: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """`q/p - 1 - log(q/p)`: unbiased and never negative; its derivative follows
    KL(q || p) instead.
    """
    most = LARGEST_LOG_RATIO
    return torch.expm1((reference - now).clamp(max=most)) - (reference - now).clamp(max=most)


def within(log_ratio: torch.Tensor) -> torch.Tensor:
    """The log-ratio where a ratio can be formed of it. A NaN stays one."""
    return log_ratio.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


KL_ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}
