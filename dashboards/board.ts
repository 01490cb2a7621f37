// A Grafana dashboard in the classic model, which Grafana 10 to 13, its sidecar and its catalogue
// read. All boards have the same variables, so that a link between them keeps the selection.

import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard';
import {
  AnnotationQueryBuilder,
  DashboardBuilder,
  DashboardCursorSync,
  DashboardLinkBuilder,
  DashboardLinkType,
  DatasourceVariableBuilder,
  QueryVariableBuilder,
  RowBuilder,
  TextBoxVariableBuilder,
  VariableRefresh,
  VariableSort,
} from '@grafana/grafana-foundation-sdk/dashboard';

import type { Link, PanelSpec } from './panel.ts';
import { datasource, inSight, panelOf } from './panel.ts';

/** The auditor serves the documents of its own version. */
const documents = '${auditor:raw}/docs';

const runbookUrl = (alert: string): string => `${documents}/runbook.md#${alert.toLowerCase()}`;

export interface Board {
  /** The name of the file, and the end of its uid. */
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly rows: readonly { readonly title: string; readonly panels: readonly PanelSpec[] }[];
}

const tag = 'endpoint-auditor';

/** The section of an alert in the runbook. */
export const runbook = (alert: string): Link => ({
  title: `Runbook: ${alert}`,
  url: runbookUrl(alert),
});

/** A section of the list of metrics. */
export const metrics = (section: string): Link => ({
  title: 'Metrics',
  url: `${documents}/metrics.md#${section.toLowerCase().replaceAll(' ', '-')}`,
});

/** The meaning of the code in this row. */
export const meaning: Link = {
  title: 'Meaning and remedy',
  url: `${documents}/findings.md#\${__data.fields.code}`,
};

/** The evidence and remedy of the kind of incident in this row. */
export const kindMeaning: Link = {
  title: 'Evidence and remedy',
  url: `${documents}/incidents.md#\${__data.fields.kind}`,
};

/** A path below the address in the variable `auditor`. */
export const atAuditor = (title: string, path: string): Link => ({
  title,
  url: `\${auditor:raw}${path}`,
});

/** The findings with the code in this row, on the page of the auditor. */
export const findingsAtAuditor = atAuditor(
  'Findings on the page',
  '/findings?q=${__data.fields.code}',
);

/** The incident of this row, on the page of the auditor. */
export const incidentAtAuditor = atAuditor(
  'Incident on the page',
  '/incidents/${__data.fields.incident}',
);

/** The Service of this row, on the page of the auditor. */
export const serviceAtAuditor = atAuditor(
  'Service on the page',
  '/services/${__data.fields.namespace}/${__data.fields.service}',
);

/** The node of this row, on the page of the auditor. */
export const nodeAtAuditor = atAuditor('Node on the page', '/nodes/${__data.fields.node}');

/** Another board, with the same time and selection. */
export const boardLink = (name: string, title: string, more = ''): Link => ({
  title,
  url: `/d/${uidOf(name)}?\${__url_time_range}&\${datasource:queryparam}&\${cluster:queryparam}${more}`,
});

const uidOf = (name: string): string => `${tag}-${name}`;

/** A variable with the values of a label; each list depends on the variables before it. */
const labelVariable = (name: string, title: string, of: string): QueryVariableBuilder =>
  new QueryVariableBuilder(name)
    .label(title)
    .datasource(datasource)
    .query(`label_values(${of}, ${name})`)
    .refresh(VariableRefresh.OnTimeRangeChanged)
    .sort(VariableSort.AlphabeticalAsc)
    .multi(true)
    .includeAll(true)
    .allValue('.*')
    .current({ selected: true, text: 'All', value: '$__all' });

/** Series of Services with findings, and of those that --metrics-per-service adds. */
const perService = '__name__=~"endpoint_auditor_service_(findings|audits_total)"';

const variables = () => [
  new DatasourceVariableBuilder('datasource').label('Data source').type('prometheus'),
  labelVariable('cluster', 'Cluster', 'endpoint_auditor_build_info'),
  labelVariable('namespace', 'Namespace', `{${perService}, cluster=~"$cluster"}`),
  labelVariable(
    'service',
    'Service',
    `{${perService}, cluster=~"$cluster", namespace=~"$namespace"}`,
  ),
  new TextBoxVariableBuilder('auditor')
    .label('Auditor')
    .description(
      'Address of the auditor in your browser. Links in tables and to documents lead there.',
    )
    .defaultValue('http://127.0.0.1:9465'),
];

const links = () =>
  [
    new DashboardLinkBuilder('Boards')
      .type(DashboardLinkType.Dashboards)
      .tags([tag])
      .includeVars(true)
      .keepTime(true),
    ...['Runbook', 'Explain', 'Findings', 'Metrics'].map((title) =>
      new DashboardLinkBuilder(title)
        .type(DashboardLinkType.Link)
        .icon('doc')
        .url(`${documents}/${title.toLowerCase()}.md`)
        .targetBlank(true),
    ),
  ].map(inSight);

/** Marks the time at which alerts of this project fire. */
const alertsAnnotation = () =>
  new AnnotationQueryBuilder()
    .name('Alerts')
    .datasource(datasource)
    .enable(true)
    .iconColor('red')
    .expr('ALERTS{alertname=~"Endpoint.*", alertstate="firing", cluster=~"$cluster"}')
    .titleFormat('{{alertname}}')
    .textFormat('{{cluster}} {{namespace}} {{service}} {{node}} {{code}}')
    .tagKeys('severity')
    .step('60s');

/** Marks the time in which an incident above information is open. */
const incidentsAnnotation = () =>
  new AnnotationQueryBuilder()
    .name('Incidents')
    .datasource(datasource)
    .enable(true)
    .iconColor('orange')
    .expr(
      'max by (cluster, incident, kind, namespace, service, node, severity) (' +
        'endpoint_auditor_incident_services{severity!="info", cluster=~"$cluster"})',
    )
    .titleFormat('{{kind}}')
    .textFormat('{{cluster}} {{incident}} {{namespace}} {{service}} {{node}}')
    .tagKeys('severity')
    .step('60s');

/** The board as Grafana reads it. */
export function dashboardOf({ name, title, description, rows }: Board): Dashboard {
  const builder = new DashboardBuilder(`Endpoint auditor / ${title}`)
    .uid(uidOf(name))
    .description(description)
    .tags([tag])
    .readonly()
    .tooltip(DashboardCursorSync.Crosshair)
    .time({ from: 'now-6h', to: 'now' })
    .refresh('1m')
    .variables(variables())
    .annotation(alertsAnnotation())
    .annotation(incidentsAnnotation())
    .links(links());
  let id = 0;
  for (const row of rows) {
    builder.withRow(new RowBuilder(row.title).id(++id));
    for (const panel of row.panels) builder.withPanel(panelOf(panel, ++id));
  }
  return builder.build();
}
