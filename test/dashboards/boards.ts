// The boards as they are committed, and their expressions as Grafana would send them.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export const folder = join(import.meta.dirname, '../../dashboards');

interface Target {
  readonly refId: string;
  readonly expr: string;
  readonly instant: boolean;
  readonly format?: 'table' | 'heatmap';
  readonly legendFormat?: string;
  readonly datasource: { readonly uid: string };
}

interface Linked {
  readonly title: string;
  readonly url?: string;
}

interface Override {
  readonly matcher: { readonly options: string };
  readonly properties: readonly { readonly id: string; readonly value: unknown }[];
}

export interface Panel {
  readonly id: number;
  readonly type: 'row' | 'timeseries' | 'stat' | 'table' | 'heatmap';
  readonly title: string;
  readonly description?: string;
  readonly gridPos: Readonly<Record<'x' | 'y' | 'w' | 'h', number>>;
  readonly datasource?: { readonly uid: string };
  readonly fieldConfig?: {
    readonly defaults: {
      readonly unit?: string;
      readonly min?: number;
      readonly max?: number;
      readonly custom?: { readonly stacking?: { readonly mode: string } };
    };
    readonly overrides: readonly Override[];
  };
  readonly targets?: readonly Target[];
  readonly links?: readonly Linked[];
}

export interface Variable {
  readonly name: string;
  readonly type: string;
  readonly query: string;
  readonly refresh?: number;
}

export interface Dashboard {
  readonly uid: string;
  readonly title: string;
  readonly description: string;
  readonly schemaVersion: number;
  readonly editable: boolean;
  readonly tags: readonly string[];
  readonly links: readonly Linked[];
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly Variable[] };
}

/** Names of the boards, as of their files. */
export const names = readdirSync(folder)
  .filter((name) => name.endsWith('.json'))
  .map((name) => name.replace('.json', ''));

export const textOf = (name: string): string => readFileSync(join(folder, `${name}.json`), 'utf8');

export const readBoard = (name: string): Dashboard => JSON.parse(textOf(name)) as Dashboard;

/** Panels that show something; rows are headings. */
export const shownPanels = ({ panels }: Dashboard): readonly Panel[] =>
  panels.filter(({ type }) => type !== 'row');

export interface Times {
  /** A duration of Prometheus. */
  readonly rateInterval: string;
  readonly range: string;
}

/** An expression with all clusters, namespaces and Services chosen. */
export const substituted = (expr: string, { rateInterval, range }: Times): string =>
  expr
    .replaceAll('$__rate_interval', rateInterval)
    .replaceAll('$__range', range)
    .replace(/"\$(?:cluster|namespace|service)"/g, '".*"');

/** What a variable lists: the samples and their label. */
export function listedBy({ query }: Variable): {
  readonly samples: string;
  readonly label: string;
} {
  const groups = /^label_values\((?<samples>.*), (?<label>\w+)\)$/.exec(query)?.groups;
  if (groups === undefined) throw new Error(`Not a list of labels: ${query}`);
  return { samples: groups.samples ?? '', label: groups.label ?? '' };
}
