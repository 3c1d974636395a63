"""What a person sees of the package: representations, progress and log lines."""
