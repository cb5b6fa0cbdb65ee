"""kfs: forecast how fast a GPU kernel will run by reading it, and know when to measure instead.

``import kfs`` touches no GPU, no network and no logging; heavy libraries are imported where they are used.
"""

__version__ = "0.1.0"

_LAZY = {"start": "kfs.report.run", "Run": "kfs.report.run"}


def __getattr__(name: str):
    """``kfs.start`` and ``kfs.Run``, imported when they are first used."""
    if name not in _LAZY:
        raise AttributeError(f"module 'kfs' has no attribute {name!r}; it offers {', '.join(_LAZY)} and its submodules")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
