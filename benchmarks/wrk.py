"""wrk as the load client: the same bodies over TLS, in turn, from a program that needs little CPU.

The benchmark's own client (`load`) is used where wrk is not installed (Debian: `apt-get install
wrk`); on two cores it takes part of the CPU that the servers are measured with.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from pathlib import Path

from benchmarks.load import Target, load

_PATIENCE = 30  # seconds for one answer
_REQUESTS = 5000  # of the own client, in place of a time
_SCRIPT = """
local bodies = {BODIES}
local requests, next = {}, 0
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
HEADERS
init = function(args)
  for i, body in ipairs(bodies) do requests[i] = wrk.format(nil, nil, nil, body) end
end
request = function()
  next = next % #requests + 1
  return requests[next]
end
"""


async def per_second(target: Target, seconds: float, connections: int) -> float:
    """Return how many requests are answered in a second. Raises RuntimeError on a wrong status."""
    if shutil.which("wrk") is None:
        return (await load(target, _REQUESTS, connections)).per_second
    with tempfile.TemporaryDirectory(prefix="kube-sync-bench-wrk-") as folder:
        script = Path(folder) / "post.lua"
        script.write_text(_script(target), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            *("wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", f"--timeout={_PATIENCE}s"),
            *("-s", str(script), target.url),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
    text = out.decode()
    found = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if found is None or "Non-2xx" in text or "Socket errors" in text:
        msg = f"wrk: {text}"
        raise RuntimeError(msg)
    return float(found[1])


def _script(target: Target) -> str:
    bodies = ", ".join(f"[==[{body}]==]" for body in target.bodies)
    headers = (
        f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}"
        for name, value in target.headers.items()
    )
    return _SCRIPT.replace("BODIES", bodies).replace("HEADERS", "\n".join(headers))
