-- The health of a policy ConfigMap, by its status annotation; every other ConfigMap is Healthy. It needs
-- the library of strings: resource.customizations.useOpenLibs.ConfigMap.
local namespaces = {["kube-federation-scheduling-policy"] = true} -- policies.namespaces

local metadata = obj.metadata
local labels, annotations = metadata.labels or {}, metadata.annotations or {}
local status = annotations["openpolicyagent.org/kube-mgmt-status"]
local stage = labels["kube-sync.io/stage"] or "active"

local function begins(prefix)
  return string.sub(status, 1, #prefix) == prefix
end

local function has_module(data)
  for key in pairs(data or {}) do
    if string.find(key, "%.rego$") then
      return true
    end
  end
  return false
end

local function is_policy()
  if labels["openpolicyagent.org/data"] ~= nil then
    return false
  end
  return labels["openpolicyagent.org/policy"] == "rego"
    or namespaces[metadata.namespace] and (has_module(obj.data) or has_module(obj.binaryData))
end

if status == nil then
  if is_policy() then
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
