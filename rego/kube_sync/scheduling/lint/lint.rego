# METADATA
# title: Lint
# description: What a valid policy says that is likely not what was meant
package kube_sync.scheduling.lint

# METADATA
# description: The findings about a canonical spec and the policy that it was written as
findings(_, _) := set()
