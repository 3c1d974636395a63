"""SGLang on shared weights: `python -m sglang.launch_server --model-path M --load-format gpuwm`.

SGLang finds this package through the entry point `gpuwm` of the group `sglang.srt.plugins`, and
calls `register` in each of its processes. `gpuwm.sglang.model_loader` says what the load format
does, and which options it takes.

Importing this package imports neither SGLang nor torch.
"""

from __future__ import annotations

from .. import _installation  # noqa: F401 (it raises where another project's gpuwm is)
from .format import FORMAT


def register() -> None:
    """Makes the load format `gpuwm` known to SGLang in this process. SGLang calls this function
    once in each process, before it reads its arguments, and applies the hooks afterwards.

    It never raises. If this SGLang does not have what gpuwm needs, it logs what is missing, and
    `--load-format gpuwm` is refused.
    """
    try:
        _register()
    except Exception as error:
        import logging

        log = logging.getLogger("sglang.gpuwm")
        log.error("gpuwm: this SGLang can't have the load format gpuwm: %r", error)


def _register() -> None:
    from sglang.srt import server_args
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from . import hooks

    for target, hook in hooks.HOOKS.items():
        HookRegistry.register(target, hook, HookType.AROUND)
    if FORMAT not in server_args.LOAD_FORMAT_CHOICES:
        server_args.add_load_format_choices([FORMAT])


__all__ = ["FORMAT", "register"]
