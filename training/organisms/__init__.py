"""Policies with planted causes ("organisms"): how they are built, and where the
bundled ones lie.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from training.organisms.base_model import RECIPES as RECIPES, build_base as build_base
    from training.organisms.organism import Organism as Organism, build_organism as build_organism
    from training.validation import confusion_text as confusion_text, validate as validate

__getattr__, __dir__ = lazy_names(__name__)
