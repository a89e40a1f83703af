// Dashboards of rows of panels, laid out from left to right. Every panel asks the data source that
// is chosen above it.
local columns = 24, width = 8, height = 8;  // of a dashboard, of a panel, in Grafana's units
local source = { type: 'prometheus', uid: '${datasource}' };

local options = {
  timeseries: {
    legend: { displayMode: 'list', placement: 'bottom', showLegend: true },
    tooltip: { mode: 'multi', sort: 'desc' },
  },
  stat: {
    colorMode: 'none',
    graphMode: 'area',
    reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
    textMode: 'auto',
  },
};

local targets(queries) = std.mapWithIndex(
  function(index, legend) {
    refId: std.char(std.codepoint('A') + index),
    datasource: source,
    expr: queries[legend],
    legendFormat: legend,
    range: true,
  },
  std.objectFields(queries)
);

local variables(config) = [
  {
    name: 'datasource',
    label: 'Data source',
    type: 'datasource',
    query: 'prometheus',
    current: {},
    hide: 0,
  },
  {
    name: 'instance',
    label: 'Process',
    type: 'query',
    datasource: source,
    query: {
      query:
        local selector = if config.instanceSelector == '' then '' else '{%s}' % config.instanceSelector;
        'label_values(kube_sync_build_info%s, instance)' % selector,
      refId: 'instance',
    },
    refresh: 2,
    multi: true,
    includeAll: true,
    allValue: '.+',
    current: { text: 'All', value: '$__all' },
    sort: 1,
    hide: 0,
  },
];

local siblings(config) = {
  title: 'kube-sync',
  type: 'dashboards',
  tags: config.dashboardTags,
  asDropdown: true,
  includeVars: true,
  keepTime: true,
  targetBlank: false,
};

// The panels of a row, in lines of three below its title.
local placed(row, y) =
  [row.title { gridPos: { h: 1, w: columns, x: 0, y: y } }] +
  std.mapWithIndex(
    function(index, panel) panel {
      gridPos: {
        h: height,
        w: width,
        x: index * width % columns,
        y: y + 1 + std.floor(index * width / columns) * height,
      },
    },
    row.panels
  );

local lines(row) = std.ceil(std.length(row.panels) * width / columns);

local laidOut(rows) = std.foldl(
  function(done, row) {
    y: done.y + 1 + lines(row) * height,
    panels: done.panels + placed(row, done.y),
  },
  rows,
  { y: 0, panels: [] }
).panels;

{
  // What it shows, and for people who did not make it, how to read it; `queries` are expressions by
  // the name of their lines, `unit` is Grafana's.
  panel(title, description, queries, unit='short', kind='timeseries'):: {
    type: kind,
    title: title,
    description: description,
    datasource: source,
    targets: targets(queries),
    fieldConfig: { defaults: { unit: unit, min: 0 }, overrides: [] },
    options: options[kind],
  },

  row(title, panels):: {
    title: { type: 'row', title: title, collapsed: false, panels: [] },
    panels: panels,
  },

  dashboard(config, uid, title, description, rows):: {
    uid: uid,
    title: config.dashboardTitlePrefix + title,
    description: description,
    tags: config.dashboardTags,
    schemaVersion: 39,
    editable: true,
    graphTooltip: 1,
    refresh: config.dashboardRefresh,
    time: { from: config.dashboardFrom, to: 'now' },
    timezone: config.dashboardTimezone,
    templating: { list: variables(config) },
    annotations: { list: [] },
    links: [siblings(config)],
    panels: std.mapWithIndex(function(index, panel) panel { id: index + 1 }, laidOut(rows)),
  },
}
