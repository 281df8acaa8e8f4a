"""A dictionary that is given instead of trained: what it asks of the diff, as
early as it can be told.
"""

from dataclasses import replace
from pathlib import Path

from crosscoders.dictionaries.saved import SavedDictionary, open_dictionary, read_object
from crosscoders.study.asked import AUTO, DiffRequest
from forensics.errors import UserError

EMBEDDING = "hook_embed"  # may be narrower than the rest of the model


def settled(request: DiffRequest) -> tuple[DiffRequest, SavedDictionary | None]:
    """The request at the site of its dictionary, and what that is. Raises
    `UserError` where they contradict.
    """
    if request.dictionary is None:
        return request, None
    saved = open_dictionary(request.dictionary)
    site = request.site if request.site != AUTO else saved.site
    if site is None:
        raise UserError(
            f"{saved.path} does not say at which site it was trained; name it with --site"
        )
    if saved.site not in (None, site):
        raise UserError(
            f"{saved.path} was trained at {saved.site} and --site is {request.site}; leave --site"
            " out, or give a dictionary of that site"
        )
    request = replace(request, site=site)
    width = None if site == EMBEDDING else _stated_width(request.before)
    if width is not None:
        saved.load(width)  # refused before anything is played
    return request, saved


def _stated_width(checkpoint: Path) -> int | None:
    """The width of the residual stream, where the checkpoint's configuration says it."""
    file = checkpoint.expanduser() / "config.json"
    if not file.is_file():
        return None
    config = read_object(file)
    text = config.get("text_config")
    width = {**config, **(text if isinstance(text, dict) else {})}.get("hidden_size")
    return width if isinstance(width, int) else None
