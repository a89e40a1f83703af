package policies.admission_summary

decision := json.filter(input, ["metadata/name", "spec/replicas", ["metadata", "labels", "app"]])
