package policies.rbac_impersonated

import data.policies.rbac_subjects

decision := {account: roles |
	some account in ["default", "builder"]
	roles := rbac_subjects.decision with input as {
		"metadata": {"namespace": input.metadata.namespace},
		"spec": {"serviceAccountName": account},
	}
}
