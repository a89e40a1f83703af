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
Written by `python -m tools.documenting` from `kube_sync/config/`; do not edit.

Every command reads the same YAML file: the one that `--config` names, else the one that the
variable `KUBE_SYNC_CONFIG` names, else none. What it leaves out, or gives as `null`, has its
default, so that an empty file will do. For example:

```yaml
{EXAMPLE}```

## The environment
Each key, but those within the items of a list, has a variable: `KUBE_SYNC_` and the key in
capitals, `_` in place of each dot. A variable wins over the file. Where a key is text the variable
is taken as it is (`null` or nothing at all: null, where the key may be null); all else is read as
YAML:

```sh
export KUBE_SYNC_OPA_URL=https://localhost:8181
export KUBE_SYNC_PLACEMENT_RESOURCES='[replicasets, deployments]'
```

## To look, and what mistakes look like
```sh
kube-sync config                            # all that is in force, secrets masked
kube-sync config --variables                # the variable of each key
kube-sync config --explain remediate.guard  # what this page says, of a section or of one key
```

YAML's only booleans are here `true` and `false`, so `off` is a word. A mistake ends a command with
status 64 and one line, which begins with the key; of a value that is of the wrong kind it names the
file or the variable. A key that does not exist is a mistake, too:

```text
kube-sync: remediate.mode: invalid enum value 'of'; known: off, dry-run, manual, enforce (in FILE)
```

## While it runs
`replicate` and `run` look at their file again every second; keys that are *live* are put in force
at once. Any other key that changes asks for a restart, by name, on the page `/readyz` (line
`configuration`) and in the log; a file that is wrong or gone changes nothing, and
`kube_sync_config_valid` is 0. All other commands read their file once, at the start, and nobody
reads the environment again. Files that keys name (tokens, certificates, kubeconfigs) are read again
when they change.

## All keys
Under *read by* are the commands that may look at the key, as found in the code.
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
    default = "has to be said" if key.default is None else f"`{key.default}`"
    read = ", ".join(readers) + ("; live" if key.live else "")
    cells = (name, key.words, default, key.text, read)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
