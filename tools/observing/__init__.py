"""What is made of the metrics and of the mixin: dashboards, rules, lists of metrics and alerts."""
