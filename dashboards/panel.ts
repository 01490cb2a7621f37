// A panel as the boards describe it, and as Grafana reads it. A board has the queries and their
// meaning; this file has the look of each kind of panel.

import type * as cog from '@grafana/grafana-foundation-sdk/cog';
import {
  BigValueColorMode,
  BigValueGraphMode,
  LegendDisplayMode,
  LegendPlacement,
  ReduceDataOptionsBuilder,
  ScaleDistribution,
  ScaleDistributionConfigBuilder,
  SortOrder,
  StackingConfigBuilder,
  StackingMode,
  TooltipDisplayMode,
  VizLegendOptionsBuilder,
  VizTooltipOptionsBuilder,
} from '@grafana/grafana-foundation-sdk/common';
import type {
  DashboardLink,
  DynamicConfigValue,
  Panel,
} from '@grafana/grafana-foundation-sdk/dashboard';
import { DashboardLinkBuilder, DashboardLinkType } from '@grafana/grafana-foundation-sdk/dashboard';
import * as heatmap from '@grafana/grafana-foundation-sdk/heatmap';
import { DataqueryBuilder, PromQueryFormat } from '@grafana/grafana-foundation-sdk/prometheus';
import * as stat from '@grafana/grafana-foundation-sdk/stat';
import * as table from '@grafana/grafana-foundation-sdk/table';
import * as timeseries from '@grafana/grafana-foundation-sdk/timeseries';

import { rank } from './query.ts';

interface Query {
  readonly expr: string;
  /** `{{label}}` is replaced by the value of a label. For a table: the name of the column. */
  readonly legend: string;
}

export interface Link {
  readonly title: string;
  readonly url: string;
}

export interface PanelSpec {
  readonly kind: 'lines' | 'stack' | 'stat' | 'table' | 'heatmap';
  readonly title: string;
  readonly description: string;
  /** A unit of Grafana. */
  readonly unit: string;
  /** Columns of 24; the panels of a row fill it. */
  readonly width: number;
  readonly queries: readonly Query[];
  /** The maximum of the axis, if there is one. */
  readonly max?: number;
  /** Negative values have a meaning. */
  readonly isSigned?: true;
  /** A logarithmic axis, for milliseconds and minutes in one panel. */
  readonly isLog?: true;
  readonly links?: readonly Link[];
  /** For a table: what a click on a cell of a column opens. */
  readonly columns?: Readonly<Record<string, readonly Link[]>>;
}

export const datasource = { type: 'prometheus', uid: '${datasource}' };

const heights = { lines: 8, stack: 8, stat: 4, table: 8, heatmap: 8 };

/** Labels whose values have the same colour in every panel. */
const colours: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  severity: { critical: 'red', warning: 'orange', info: 'blue' },
  verdict: { ok: 'green', pending: 'yellow', mismatch: 'red', unknown: 'text' },
  condition: {
    ready: 'green',
    'terminating-serving': 'yellow',
    terminating: 'orange',
    'not-ready': 'red',
  },
  kind: { equal: 'blue', conflicting: 'red' },
};

/** Builders of every kind of panel. */
type Builder =
  heatmap.PanelBuilder | stat.PanelBuilder | table.PanelBuilder | timeseries.PanelBuilder;

/** The toolkit would put links into a menu. */
export const inSight = (link: DashboardLinkBuilder): cog.Builder<DashboardLink> => ({
  build() {
    const shown = link.build();
    delete shown.placement;
    return shown;
  },
});

const linkTo = ({ title, url }: Link): cog.Builder<DashboardLink> =>
  inSight(new DashboardLinkBuilder(title).type(DashboardLinkType.Link).url(url).targetBlank(true));

const estimate =
  'Percentiles are estimates from buckets: if few changes were slow, the line can be at the ' +
  'upper bound of their bucket (such as 300 s for 120 s).';

function described<B extends Builder>(builder: B, spec: PanelSpec, id: number): B {
  const isEstimate = spec.queries.some(({ expr }) => expr.includes('histogram_quantile'));
  builder
    .id(id)
    .title(spec.title)
    .description(isEstimate ? `${spec.description} ${estimate}` : spec.description)
    .datasource(datasource)
    .unit(spec.unit)
    .span(spec.width)
    .height(heights[spec.kind]);
  for (const [index, query] of spec.queries.entries()) {
    builder.withTarget(targetOf(query, spec, String.fromCharCode(65 + index)));
  }
  if (spec.max !== undefined) builder.max(spec.max);
  if (spec.links !== undefined) builder.links(spec.links.map(linkTo));
  return builder;
}

function targetOf({ expr, legend }: Query, { kind }: PanelSpec, refId: string): DataqueryBuilder {
  const target = new DataqueryBuilder().datasource(datasource).expr(expr).refId(refId);
  if (kind === 'table') return target.instant().format(PromQueryFormat.Table);
  if (kind === 'heatmap')
    return target.range().format(PromQueryFormat.Heatmap).legendFormat('{{le}}');
  // Exemplars link to the traces of slow changes.
  return target
    .range()
    .legendFormat(legend)
    .exemplar(/_bucket\b/.test(expr));
}

function coloured<B extends Builder>(builder: B, { queries }: PanelSpec): B {
  for (const [label, words] of Object.entries(colours)) {
    if (!queries.some(({ legend }) => legend === `{{${label}}}` || legend in words)) continue;
    for (const [word, fixedColor] of Object.entries(words)) {
      builder.overrideByName(word, [{ id: 'color', value: { mode: 'fixed', fixedColor } }]);
    }
  }
  return builder;
}

function linesOf(spec: PanelSpec, id: number): timeseries.PanelBuilder {
  const builder = coloured(described(new timeseries.PanelBuilder(), spec, id), spec)
    .legend(
      new VizLegendOptionsBuilder()
        .showLegend(true)
        .displayMode(LegendDisplayMode.List)
        .placement(LegendPlacement.Bottom),
    )
    .tooltip(
      new VizTooltipOptionsBuilder().mode(TooltipDisplayMode.Multi).sort(SortOrder.Descending),
    );
  if (spec.isLog === true) {
    const log = new ScaleDistributionConfigBuilder().type(ScaleDistribution.Log).log(10);
    return builder.scaleDistribution(log);
  }
  if (spec.isSigned !== true) builder.min(0);
  if (spec.kind !== 'stack') return builder;
  return builder.fillOpacity(40).stacking(new StackingConfigBuilder().mode(StackingMode.Normal));
}

function statOf(spec: PanelSpec, id: number): stat.PanelBuilder {
  return coloured(described(new stat.PanelBuilder(), spec, id), spec)
    .reduceOptions(new ReduceDataOptionsBuilder().calcs(['lastNotNull']))
    .colorMode(BigValueColorMode.None)
    .graphMode(BigValueGraphMode.Area);
}

function heatmapOf(spec: PanelSpec, id: number): heatmap.PanelBuilder {
  return described(new heatmap.PanelBuilder(), spec, id)
    .calculate(false)
    .color(
      new heatmap.HeatmapColorOptionsBuilder()
        .mode(heatmap.HeatmapColorMode.Scheme)
        .scheme('Oranges')
        .scale(heatmap.HeatmapColorScale.Exponential)
        .exponent(0.5)
        .steps(64),
    )
    .yAxis(new heatmap.YAxisConfigBuilder().unit(spec.unit))
    .cellGap(1)
    .tooltip(new heatmap.HeatmapTooltipBuilder().mode(TooltipDisplayMode.Single).yHistogram(true));
}

/** The labels that a query leaves, in its order. */
const columnsOf = ({ queries }: PanelSpec): string[] =>
  /by \(([^)]*)\)/.exec(queries[0]?.expr ?? '')?.[1]?.split(', ') ?? [];

/** One row per set of labels, the worst severity first, and a column per query. */
function tableOf(spec: PanelSpec, id: number): table.PanelBuilder {
  const builder = described(new table.PanelBuilder(), spec, id).filterable(true);
  const names = Object.fromEntries(
    spec.queries.map(({ legend }, index) => [
      spec.queries.length === 1 ? 'Value' : `Value #${String.fromCharCode(65 + index)}`,
      legend,
    ]),
  );
  builder.withTransformation({ id: 'merge', options: {} });
  if (spec.queries.some(({ expr }) => expr.includes(`"${rank}"`))) {
    builder.withTransformation({ id: 'sortBy', options: { sort: [{ field: rank }] } });
  }
  builder.withTransformation({
    id: 'organize',
    options: {
      excludeByName: { Time: true, [rank]: true },
      indexByName: Object.fromEntries(columnsOf(spec).map((label, index) => [label, index])),
      renameByName: names,
    },
  });
  for (const [column, links] of Object.entries(spec.columns ?? {})) {
    const value = links.map(({ title, url }) => ({ title, url, targetBlank: true }));
    const properties: DynamicConfigValue[] = [{ id: 'links', value }];
    builder.overrideByName(column, properties);
  }
  return builder;
}

export function panelOf(spec: PanelSpec, id: number): cog.Builder<Panel> {
  switch (spec.kind) {
    case 'lines':
    case 'stack':
      return linesOf(spec, id);
    case 'stat':
      return statOf(spec, id);
    case 'table':
      return tableOf(spec, id);
    case 'heatmap':
      return heatmapOf(spec, id);
  }
}
