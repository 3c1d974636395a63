"""What vLLM finds through the entry points that conftest writes."""


def platform() -> str:
    """Of the group `vllm.platform_plugins`: the name of the platform's class."""
    return "tests_vllm.platform.LoadingPlatform"


def register() -> None:
    """Of the group `vllm.general_plugins`."""
    from . import latent, stopping

    latent.register()
    stopping.register()
