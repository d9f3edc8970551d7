-- Health of an EPDDeployment for Argo CD, from the same conditions that kstatus reads. Lua 5.1.
local health = { status = "Progressing", message = "Waiting for the operator" }

-- Conditions of an older generation say nothing about what has just been applied.
if obj.status == nil or obj.status.conditions == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return health
end

local found = {}
for _, condition in ipairs(obj.status.conditions) do
  found[condition.type] = condition
end

local function is(type, status)
  return found[type] ~= nil and found[type].status == status
end

local function says(type)
  local condition = found[type]
  if condition.message == nil or condition.message == "" then
    return condition.reason
  end
  return condition.reason .. ": " .. condition.message
end

-- Ready is True also when the object is suspended as asked. That is Healthy and not Suspended, for which a sync wave
-- would wait for ever.
if is("Stalled", "True") then
  health.status = "Degraded"
  health.message = says("Stalled")
elseif is("Ready", "True") then
  health.status = "Healthy"
  health.message = says("Ready")
elseif found["Ready"] ~= nil then
  health.message = says("Ready")
end
return health
