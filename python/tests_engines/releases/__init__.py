"""What the releases of vLLM and SGLang have of what gpuwm's plugins use: `scripts/engines`.

- `wheels` reads a wheel, and keeps its texts.
- `names` finds a name, its kind and its signature in these texts. Nothing of an engine is run.
- `plugin` finds what our plugins use, in their own source.
- `arguments` has the arguments of a release, and the plugins' lists of them.
- `facts` is all of that for one release, as it is committed in the folder `facts`.
- `problems` says what of the plugins does not fit the facts.
- `table` makes the table of releases in docs/engines/releases.md.

Nothing here imports an engine, torch or gpuwm.
"""
