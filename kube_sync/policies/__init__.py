"""Policy ConfigMaps into OPA: as one set, compiled beforehand, and the outcome back."""
