// What an installation may want to be different: add an object with `_config+::` to the mixin.
{
  _config+:: {
    // Matchers of the scrape jobs of all processes, that of OPA included.
    jobSelector: 'job=~"(.+/)?kube-sync.*"',
    // More matchers of the processes that the dashboards offer, as 'cluster="hub"'.
    instanceSelector: '',

    // Labels that each alert has beside its severity.
    alertLabels: {},
    // Where the runbook of an alert is.
    runbookURL: 'docs/runbooks/%s.md',

    // When the alerts of their names fire.
    replicationStalledSeconds: 60,
    replicationSlowSeconds: 5,
    admissionSlowSeconds: 1,
    decisionsFailingRatio: 0.01,
    admissionUndecidableRatio: 0.01,
    certificateExpiresDays: 7,

    dashboardTitlePrefix: 'kube-sync / ',
    dashboardTags: ['kube-sync'],
    dashboardRefresh: '30s',
    dashboardFrom: 'now-3h',
    dashboardTimezone: 'browser',
  },
}
