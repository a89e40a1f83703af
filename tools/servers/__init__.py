"""The real servers that tests, demo and compose run, each at the version pinned in `tools/go.mod`.

`versions` reads the pins, `binaries` and `images` have them in two forms, `specs` says how each is
run, `processes` and `containers` run them, `stack` puts three together.
"""
