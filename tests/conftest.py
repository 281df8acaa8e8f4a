"""Settings for every test: a slow machine is not a failure."""

import warnings

from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
warnings.filterwarnings("ignore", category=DeprecationWarning)
