"""docs/configure.md, made of kube_sync/config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from kube_sync.config import Key, keys
from kube_sync.config.explanation import ITEM, about

# A unit test loads it.
EXAMPLE: Final = """\
opa: {url: https://localhost:8181, token_file: /run/opa-token/token, ca_file: /run/tls/ca.crt}
replicate:
  fields: auto
  resources:
    - {group: multicluster.x-k8s.io, version: v1alpha1, resource: clusterprofiles, as: clusters}
    - {group: apps, version: v1, resource: replicasets, ignore_namespaces: [kube-system]}
remediate:
  mode: manual
  namespaces: {shop: enforce}
  guard: {moves_per_minute: 20, shrink_share: 0.1}
"""
_HEAD = f"""\
# Configure
This page explains the configuration file and lists every key of it. It is written by
`python -m tools.documenting` from `kube_sync/config/`; do not edit.

Every command reads the same YAML file: the one that `--config` names, else the one that the
variable `KUBE_SYNC_CONFIG` names, else none. A key that is absent or `null` has its default, so an
empty file is valid. For example:

```yaml
{EXAMPLE}```

## Environment variables
Each key has a variable, except keys within the items of a list: `KUBE_SYNC_` and the key in
capitals, with `_` in place of each dot. A variable overrides the file. The value of a text key is
used as it is (`null` or an empty value means null, where the key may be null); any other value is
parsed as YAML:

```sh
export KUBE_SYNC_OPA_URL=https://localhost:8181
export KUBE_SYNC_PLACEMENT_RESOURCES='[replicasets, deployments]'
```

## Editors
`schemas/config.schema.json` is the JSON Schema of the file; `kube-sync schema config` prints the
one of the installed version. Editors with the YAML language server complete and explain keys by it,
and underline what does not exist, if the first row of the file names it:

```yaml
# yaml-language-server: $schema=kube-sync.schema.json
```

## Show and check the configuration
```sh
kube-sync config                            # the effective configuration, secrets masked
kube-sync config --variables                # the variable of each key
kube-sync config --explain remediate.guard  # the text of this page about a section or a key
```

Only `true` and `false` are booleans, so `off` is a string. An error ends the command with exit
status 64 and one line, which begins with the key; for a value of the wrong type, it also names
the file or the variable. An unknown key is an error:

```text
kube-sync: remediate.mode: invalid enum value 'of'; known: off, dry-run, manual, enforce (in FILE)
```

## Reload
`replicate` and `run` check their file every second and apply changes of *live* keys at once. When
any other key changes, `/readyz` (line `configuration`) and the log name it and ask for a restart. A
file that is invalid or missing changes nothing, and `kube_sync_config_valid` is 0. All other
commands read the file once, at the start. Environment variables are read only at the start. Files
that keys name (tokens, certificates, kubeconfigs) are read again when they change.

## All keys
The column *read by* lists the commands that can read the key, as derived from the code.
"""


def rendered(readers: Mapping[str, Sequence[str]]) -> str:
    """Return the page; `readers` are the commands that read each key, by its path."""
    parts = [_HEAD]
    for _, found in groupby(keys(), lambda key: key.path.partition(".")[0].removesuffix(ITEM)):
        parts += _parts(list(found), readers)
    return "\n".join(parts)


def _parts(found: Sequence[Key], readers: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what is said of one key of the top level: each section, with a table of its keys."""
    parts = []
    for key in found:
        item = key.path + ITEM
        level = "#" * (3 + key.path.count("."))
        within = [other for other in found if not other.is_section and _above(other) == key.path]
        if key.is_section:
            parts.append(f"{level} `{key.path}`\n{key.text}\n")
        elif "." not in key.path:
            parts.append(f"{level} `{key.path}`\n")
            within = [key]
        elif within := [other for other in found if _above(other) == item]:
            text = about(within[0].section)
            parts.append(f"{level} `{item}`\n{text}\nItems have no variables of their own.\n")
        else:
            continue
        if within:
            rows = [_row(other, readers[other.path]) for other in within]
            parts.append("\n".join([_COLUMNS, *rows, ""]))
    return parts


_COLUMNS = "| key | may be | default | does | read by |\n|---|---|---|---|---|"


def _above(key: Key) -> str:
    return key.path.rpartition(".")[0]


def _row(key: Key, readers: Sequence[str]) -> str:
    name = f"`{key.path}`" + (f"<br>`{key.variable}`" if key.variable else "")
    default = "required" if key.default is None else f"`{key.default}`"
    read = ", ".join(readers) + ("; live" if key.live else "")
    cells = (name, key.words, default, key.text, read)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
