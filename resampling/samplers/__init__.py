"""Continuing traces: by a policy here, by a server, by many workers, from what is stored."""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from resampling.samplers.branches import replay_run as replay_run
    from resampling.samplers.ray_sampler import (
        FromCheckpoint as FromCheckpoint,
        RayConfig as RayConfig,
        RaySampler as RaySampler,
    )
    from resampling.samplers.rollout_store import StoredSampler as StoredSampler
    from resampling.samplers.server_sampler import (
        ServerSampler as ServerSampler,
        checkpoint_rendering as checkpoint_rendering,
        open_server as open_server,
    )

__getattr__, __dir__ = lazy_names(__name__)
