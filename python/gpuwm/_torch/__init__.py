"""What needs torch. `import gpuwm` imports no module of this folder."""
