"""The connection, the names and the scripts by which Redis is changed."""

from redis import Redis

from .keys import Keys
from .scripts import Scripts
from .settings import PATIENCE_GRACES, Settings


class Calls:
    """What every call to a script needs. Safe to use from several threads."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self.redis, self.settings = redis, settings
        self.keys = Keys(settings.prefix)
        self._scripts = Scripts(redis, self.keys)
        self._lease = round(settings.lease * 1000)
        self._patience = round(1000 * (PATIENCE_GRACES * settings.grace + settings.lease))

    @property
    def scripts(self) -> Scripts:
        """The scripts, for what is kept beside this class."""
        return self._scripts
