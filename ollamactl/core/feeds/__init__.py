"""Which source supplies which fact, through which parser.

A feed is a function of the collector; its name is the field of `Facts`. Feeds ask for one another, and each is read
once. A feed that can't know its fact raises `Unknown` with the reason. Importing this package registers them all, but
for those of a Mac, which are imported there only.
"""

from ollamactl.core.feeds import (
    api,
    dependencies,
    installs,
    log,
    machine,
    processes,
    service,
    strays,
    surroundings,
    user_units,
)
from ollamactl.core.feeds.api import client_address
from ollamactl.core.feeds.collector import FEEDS, Collector, Unknown
from ollamactl.core.feeds.log import journal_args, log_sources
from ollamactl.core.feeds.service import read_env_files, uninstalled

__all__ = [
    "FEEDS",
    "Collector",
    "Unknown",
    "api",
    "client_address",
    "dependencies",
    "installs",
    "journal_args",
    "log",
    "log_sources",
    "machine",
    "processes",
    "read_env_files",
    "service",
    "strays",
    "surroundings",
    "uninstalled",
    "user_units",
]
