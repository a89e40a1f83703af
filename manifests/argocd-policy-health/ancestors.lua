-- The health of a policy of the topology (GEP-713), by the entries of kube-sync in `status.ancestors`: a
-- policy that is not accepted, or names what is not there, is Degraded. One that is overridden is Healthy.
local found = {status = "Progressing", message = "kube-sync has not looked at this generation yet"}
for _, ancestor in ipairs((obj.status or {}).ancestors or {}) do
  if ancestor.controllerName == "kube-sync.io/topology" then
    for _, condition in ipairs(ancestor.conditions) do
      if condition.observedGeneration ~= obj.metadata.generation then
        return {status = "Progressing", message = "kube-sync has not looked at this generation yet"}
      end
      local must_hold = condition.type == "Accepted" or condition.type == "ResolvedRefs"
      if must_hold and condition.status == "False" then
        return {status = "Degraded", message = condition.message}
      end
      found = {status = "Healthy", message = condition.message}
    end
  end
end
return found
