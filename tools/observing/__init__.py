"""What is made of the metrics: Grafana dashboards, the PrometheusRule, the list of metrics."""
