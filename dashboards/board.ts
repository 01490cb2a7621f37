// A board of Grafana in the classic model, which Grafana 10 to 13, its sidecar and its catalogue
// read. All boards have the same variables, so that a link from one to another keeps what is
// chosen.

import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard';
import {
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

import { documents, runbookUrl } from '../src/output/page/lists.ts';
import type { Link, PanelSpec } from './panel.ts';
import { datasource, inSight, panelOf } from './panel.ts';

export interface Board {
  /** Of the file, and the end of its uid. */
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

/** The section of a family's kind in the list of metrics. */
export const metrics = (section: string): Link => ({
  title: 'What is measured',
  url: `${documents}/metrics.md#${section.toLowerCase().replaceAll(' ', '-')}`,
});

/** What a finding of the code in this row means. */
export const meaning: Link = {
  title: 'What it means, and what to do',
  url: `${documents}/findings.md#\${__data.fields.code}`,
};

/** Below the address of the auditor that the reader has given. */
export const atAuditor = (title: string, path: string): Link => ({
  title,
  url: `\${auditor:raw}${path}`,
});

/** The Service of this row, in full. */
export const serviceAtAuditor = atAuditor(
  'Why: this Service at the auditor',
  '/api/v1/services/${__data.fields.namespace}/${__data.fields.service}',
);

/** Another board, of the same time and what is chosen. */
export const boardLink = (name: string, title: string, more = ''): Link => ({
  title,
  url: `/d/${uidOf(name)}?\${__url_time_range}&\${datasource:queryparam}&\${cluster:queryparam}${more}`,
});

const uidOf = (name: string): string => `${tag}-${name}`;

/** A label of the clusters, Services or their namespaces; each list depends on those before. */
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

const perService = 'endpoint_auditor_service_audits_total';

const variables = () => [
  new DatasourceVariableBuilder('datasource').label('Data source').type('prometheus'),
  labelVariable('cluster', 'Cluster', 'endpoint_auditor_build_info'),
  labelVariable('namespace', 'Namespace', `${perService}{cluster=~"$cluster"}`),
  labelVariable(
    'service',
    'Service',
    `${perService}{cluster=~"$cluster", namespace=~"$namespace"}`,
  ),
  new TextBoxVariableBuilder('auditor')
    .label('Auditor')
    .description('Where your browser reaches the auditor; links of tables lead there.')
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
    .links(links());
  let id = 0;
  for (const row of rows) {
    builder.withRow(new RowBuilder(row.title).id(++id));
    for (const panel of row.panels) builder.withPanel(panelOf(panel, ++id));
  }
  return builder.build();
}
