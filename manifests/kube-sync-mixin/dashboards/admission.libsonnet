local layout = import 'layout.libsonnet';
local panel = layout.panel;
local row = layout.row;

{
  grafanaDashboards+:: {
    'kube-sync-admission.json': layout.dashboard($._config, 'kube-sync-admission', 'Admission', 'How are reviews answered, and does the API server still ask?', [
      row('Reviews of placement', [
        panel(
          'Reviews',
          'By outcome. Denied is a decision of the policy; undecidable means that there was no decision, and the review was denied for that reason.',
          { '{{outcome}}': 'sum by (outcome) (rate(kube_sync_admission_seconds_count{instance=~"$instance"}[$__rate_interval]))' },
          unit='reqps'
        ),
        panel(
          'Time to answer',
          'Median and 99th percentile. The API server gives up after the timeout of its registration.',
          {
            'p50': 'histogram_quantile(0.5, sum by (le) (rate(kube_sync_admission_seconds_bucket{instance=~"$instance"}[$__rate_interval])))',
            'p99': 'histogram_quantile(0.99, sum by (le) (rate(kube_sync_admission_seconds_bucket{instance=~"$instance"}[$__rate_interval])))',
          },
          unit='s'
        ),
        panel(
          'Without a decision',
          'Share of the reviews that were undecidable.',
          {
            'undecidable': 'sum(rate(kube_sync_admission_seconds_count{instance=~"$instance", outcome="undecidable"}[$__rate_interval])) / sum(rate(kube_sync_admission_seconds_count{instance=~"$instance"}[$__rate_interval]))',
          },
          unit='percentunit'
        ),
        panel(
          'Requests to the policy engine',
          'By outcome; every outcome except answered makes reviews undecidable.',
          {
            '{{outcome}}': 'sum by (outcome) (rate(kube_sync_admission_engine_attempts_total{instance=~"$instance"}[$__rate_interval]))',
          },
          unit='reqps'
        ),
        panel(
          'Answers by class',
          "By outcome; differed must be 0 (admission.classes: verify compares each with OPA's).",
          {
            '{{outcome}}': 'sum by (outcome) (rate(kube_sync_admission_class_answers_total{instance=~"$instance"}[$__rate_interval]))',
          },
          unit='reqps'
        ),
        panel(
          'Policy engine down',
          '1 while the policy engine does not answer: every review is denied at once.',
          { '{{instance}}': 'max by (instance) (kube_sync_admission_engine_down{instance=~"$instance"})' }
        ),
        panel(
          'Events of denials',
          'By outcome; dropped means that there were too many at once.',
          {
            '{{outcome}}': 'sum by (outcome) (increase(kube_sync_admission_events_total{instance=~"$instance"}[$__rate_interval])) or vector(0)',
          }
        ),
      ]),
      row('Registration and certificates', [
        panel(
          'Closed',
          '1 while failurePolicy is Fail, so that the API server denies requests without an answer, as it should from the first policy on; and whether this process maintains the registration.',
          {
            'closed': 'max(kube_sync_admission_registration_closed{instance=~"$instance"})',
            'kept': 'max(kube_sync_admission_registration_kept{instance=~"$instance"})',
          }
        ),
        panel(
          'Writes of the registration',
          'By outcome; there are none if nothing changes.',
          {
            '{{outcome}}': 'sum by (outcome) (increase(kube_sync_admission_registration_writes_total{instance=~"$instance"}[$__rate_interval]))',
          }
        ),
        panel(
          'Certificates expire in',
          'Time until the certificates of servers expire; replaced files are read without a restart.',
          { '{{server}}': 'min by (server) (kube_sync_certificate_expiry_timestamp_seconds{instance=~"$instance"} - time())' },
          unit='s', kind='stat'
        ),
      ]),
    ]),
  },
}
