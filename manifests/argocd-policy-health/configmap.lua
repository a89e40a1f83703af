-- The health of a policy ConfigMap, by its status annotation; every other ConfigMap is Healthy. Texts
-- are compared from their beginning: Argo CD gives a script no library of strings.
local namespaces = {["kube-federation-scheduling-policy"] = true} -- policies.namespaces

local metadata = obj.metadata
local labels, annotations = metadata.labels or {}, metadata.annotations or {}
local status = annotations["openpolicyagent.org/kube-mgmt-status"]
local stage = labels["kube-sync.io/stage"] or "active"

local function begins(prefix)
  return status >= prefix and status < prefix .. "~"
end

if status == nil then
  local inside = namespaces[metadata.namespace] and labels["openpolicyagent.org/data"] == nil
  if inside or labels["openpolicyagent.org/policy"] == "rego" then
    return {status = "Progressing", message = "kube-sync has not looked at this policy yet"}
  end
  return {status = "Healthy", message = ""}
end
for _, instead in ipairs({"the last good version", "nothing of this ConfigMap"}) do
  if begins('{"status":"error","in_force":"' .. instead .. '","error":{"code":"waiting"') then
    return {status = "Progressing", message = status}
  end
end
if not begins('{"status":"ok"') then
  return {status = "Degraded", message = status}
end
if stage ~= "active" then
  return {status = "Progressing", message = "it waits for a person who takes it to active"}
end
return {status = "Healthy", message = status}
