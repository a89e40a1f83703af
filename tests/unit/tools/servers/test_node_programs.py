from __future__ import annotations

from tools.servers.node_programs import KUBERNETES, KUBERNETES_PROGRAMS, PROGRAM
from tools.servers.versions import GO_MODULE, read_go_mod, required, tools


def test_node_is_of_the_version_of_the_api_server_and_not_built_with_the_others() -> None:
    pinned = required(read_go_mod(GO_MODULE / PROGRAM))
    assert pinned[KUBERNETES] == tools()["kube-apiserver"].version
    assert not {*KUBERNETES_PROGRAMS} & {*tools()}
