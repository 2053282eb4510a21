"""All checks, by subject. Importing this package registers them."""

from ollamactl.core.checks import (
    arrived,
    clients,
    context,
    exposure,
    gpu,
    loading,
    memory,
    models,
    platforms,
    service,
    slots,
    storage,
    unitfiles,
    values,
)
from ollamactl.core.checks.base import CHECKS, Check, Crashed, Finding, Ignored, Report, Skipped, run

__all__ = [
    "CHECKS",
    "Check",
    "Crashed",
    "Finding",
    "Ignored",
    "Report",
    "Skipped",
    "arrived",
    "clients",
    "context",
    "exposure",
    "gpu",
    "loading",
    "memory",
    "models",
    "platforms",
    "run",
    "service",
    "slots",
    "storage",
    "unitfiles",
    "values",
]
