-- The health of a PlacementPolicy, SchedulingPolicy or MetadataPolicy, by the conditions that kstatus
-- reads: Stalled is Degraded, Reconciling is Progressing, Ready is Healthy.
local found = {status = "Progressing", message = "kube-sync has not looked at this generation yet"}
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return found
end
local health = {Stalled = "Degraded", Reconciling = "Progressing", Ready = "Healthy"}
for _, condition in ipairs(obj.status.conditions or {}) do
  if condition.status == "True" and health[condition.type] ~= nil then
    found.status = health[condition.type]
    found.message = condition.message
  end
end
return found
