"""The modules of a model, as they are now."""

from __future__ import annotations

from torch import nn

from .._torch.places import modules_of


class Tree:
    """The modules of a model: by name, everything that each has, and the first name by identity."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.modules: dict[str, nn.Module] = {}
        self.names: dict[int, str] = {}
        self.look()

    def look(self) -> None:
        """Looks at the modules again: post-processing may add modules and drop some."""
        self.modules.clear()
        self.names.clear()
        for prefix, module in modules_of(self._model):
            name = prefix.removesuffix(".")
            self.modules[name] = module
            self.names.setdefault(id(module), name)

    def look_below(self, module: nn.Module) -> None:
        """Looks below a module. Returns whether there are new modules."""
        for name, each in module.named_modules(prefix=self.names[id(module)]):
            self.modules[name] = each
            self.names.setdefault(id(each), name)
