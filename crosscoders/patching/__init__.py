"""Where the change between two checkpoints lives: activation patching and weight grafting."""

from crosscoders.patching.choosing import SiteChoice, SiteRule, choose_site
from crosscoders.patching.decisions import Behaviour, Decision, decisions_of, starting_with, whole_actions
from crosscoders.patching.maps import default_modules, graft_map, output_of, patch_map
from crosscoders.patching.moved import Share
from crosscoders.patching.picture import figures, table
from crosscoders.patching.places import all_sites, pieces_of
from crosscoders.patching.played import Play, PlayedRow, hybrid_policy, played_map
from crosscoders.patching.results import Change, ChangeMap, MapConfig, Row

__all__ = [
    "Behaviour", "Change", "ChangeMap", "Decision", "MapConfig", "Play", "PlayedRow", "Row", "Share", "SiteChoice",
    "SiteRule", "all_sites", "choose_site", "decisions_of", "default_modules", "figures", "graft_map", "hybrid_policy",
    "output_of", "patch_map", "pieces_of", "played_map", "starting_with", "table", "whole_actions",
]
