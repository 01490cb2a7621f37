import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

import * as units from '@grafana/grafana-foundation-sdk/units';
import { describe, expect, test } from 'vitest';

import { dashboardOf } from '../../dashboards/board.ts';
import { boards } from '../../dashboards/boards.ts';
import { catalogue, severities } from '../../src/audit/finding/catalogue.ts';
import { incidentKinds } from '../../src/audit/incident/kinds.ts';
import { recorded } from '../alerts/alertmanager.ts';
import { groupedBy, metricsOf, problemsOf } from '../prometheus/server.ts';
import type { Panel } from './panels.ts';
import { folder, listedBy, names, readBoard, shownPanels, substituted, textOf } from './panels.ts';

// The checker of types is to be had as CommonJS alone, and must meet its own kind of state.
const require = createRequire(import.meta.url);
const { EditorState } = require('@codemirror/state') as {
  EditorState: { create: (of: { doc: string; extensions: readonly unknown[] }) => unknown };
};
const { syntaxTreeAvailable } = require('@codemirror/language') as {
  syntaxTreeAvailable: (state: unknown) => boolean;
};
const { promQLLanguage, LanguageType } = require('@prometheus-io/codemirror-promql') as {
  promQLLanguage: (top: unknown) => unknown;
  LanguageType: { PromQL: unknown };
};
const { Parser } = require('@prometheus-io/codemirror-promql/dist/cjs/parser/parser.js') as {
  Parser: new (state: unknown) => {
    analyze(): void;
    getDiagnostics(): readonly { readonly message: string }[];
  };
};

/** What is wrong with the types of an expression, such as a rate of an instant vector. */
function typeProblems(expr: string): string[] {
  const extensions = [promQLLanguage(LanguageType.PromQL)];
  let state = EditorState.create({ doc: expr, extensions });
  // An editor does not wait for its parser: on a busy machine it may have got nowhere.
  while (!syntaxTreeAvailable(state)) state = EditorState.create({ doc: expr, extensions });
  const parser = new Parser(state);
  parser.analyze();
  return parser.getDiagnostics().map(({ message }) => `${message}: ${expr}`);
}

const times = { rateInterval: '5m', range: '6h' };

/** What Prometheus makes of the rules. */
const ofAlerts = ['severity', 'cluster', 'namespace', 'service', 'node', 'code', 'incident'];
const known = new Map([
  ...recorded,
  [
    'ALERTS',
    Object.fromEntries([...ofAlerts, 'alertname', 'alertstate'].map((label) => [label, []])),
  ],
]);
const all = names.map((name) => ({ name, board: readBoard(name) }));
const panelsOf = (name: string): readonly Panel[] => shownPanels(readBoard(name));
const expressionsOf = ({ targets = [] }: Panel): string[] => targets.map(({ expr }) => expr);

test('the checks report a wrong metric, label or unit', () => {
  expect(typeProblems('rate(endpoint_auditor_updates_total)')).toHaveLength(1);
  expect(() => problemsOf('sum(rate(endpoint_auditor_updates_total[5m])')).toThrow('Not PromQL');
  expect(typeProblems('sum by (resource) (rate(endpoint_auditor_updates_total[5m]))')).toEqual([]);
  expect(problemsOf('sum by (pod) (endpoint_auditor_update_total)')).toHaveLength(2);
  expect(problemsOf('process_cpu_seconds_total{service="x"}')).toHaveLength(1);
});

test('there are four boards, and each is known', () => {
  expect([...names].sort()).toEqual(boards.map(({ name }) => name).sort());
  expect(names.length).toBe(4);
  expect(new Set(all.map(({ board }) => board.uid)).size).toBe(4);
  expect(new Set(all.map(({ board }) => board.title)).size).toBe(4);
});

test.each(boards)('$name.json is what the generator writes (npm run dashboards)', (board) => {
  expect(textOf(board.name)).toBe(`${JSON.stringify(dashboardOf(board), null, 2)}\n`);
});

describe.each(all)('$name', ({ name, board }) => {
  test('is in the classic model, and is not editable', () => {
    expect(board.schemaVersion).toBe(42);
    expect(board.editable).toBe(false);
    expect(board.uid).toBe(`endpoint-auditor-${name}`);
    expect(board.uid.length).toBeLessThanOrEqual(40);
    expect(board.description).toMatch(/\.$/);
    // What a ConfigMap may hold is a megabyte.
    expect(textOf(name).length).toBeLessThan(200_000);
  });

  test('has the variables, each is used, and lists are of what there is', () => {
    const { list } = board.templating;
    expect(list.map((variable) => variable.name)).toEqual([
      ...['datasource', 'cluster', 'namespace', 'service', 'auditor'],
    ]);
    const used = JSON.stringify([board.panels, board.links]);
    for (const variable of list) expect(used).toMatch(new RegExp(`\\$\\{?${variable.name}\\b`));
    for (const variable of list.filter(({ type }) => type === 'query')) {
      const { samples, label } = listedBy(variable);
      // Without a name of a metric, its expression is of several.
      const names = /__name__=~"(\w+)\(([\w|]+)\)", /.exec(samples);
      const [pattern = '', prefix = '', ends = ''] = names ?? [];
      for (const end of ends.split('|')) {
        const one = names === null ? samples : `${prefix}${end}${samples.replace(pattern, '')}`;
        expect(problemsOf(`count by (${label}) (${substituted(one, times)})`)).toEqual([]);
      }
      expect(variable.refresh).toBe(2);
    }
  });

  test('panels say what they show, in which unit, and from where', () => {
    const known = new Set<unknown>(Object.values(units));
    for (const { title, description, fieldConfig, datasource, targets } of panelsOf(name)) {
      expect(title).not.toBe('');
      expect([title, /^[A-Z].{30,}\.$/.test(description ?? '')]).toEqual([title, true]);
      expect([title, known.has(fieldConfig?.defaults.unit)]).toEqual([title, true]);
      for (const source of [datasource, ...(targets ?? []).map((target) => target.datasource)]) {
        expect(source?.uid).toBe('${datasource}');
      }
    }
    const titles = shownPanels(board).map(({ title, type }) => `${type} ${title}`);
    expect(new Set(titles).size).toBe(titles.length);
  });

  test('expressions parse, have types, and ask for what /metrics shows', () => {
    const problems = panelsOf(name).flatMap((panel) => {
      const expressions = expressionsOf(panel).map((expr) => substituted(expr, times));
      const found = expressions.flatMap((expr) => [
        ...typeProblems(expr),
        ...problemsOf(expr, known),
      ]);
      return found.map((problem) => `${panel.title}: ${problem}`);
    });
    expect(problems).toEqual([]);
    for (const panel of panelsOf(name)) expect(expressionsOf(panel).length).toBeGreaterThan(0);
  });

  test('every sample is of the clusters chosen, and every window follows the zoom', () => {
    for (const expr of panelsOf(name).flatMap(expressionsOf)) {
      expect(substituted(expr, times)).not.toContain('$');
      const windows = [...expr.matchAll(/\[(.*?)\]/g)].map(([, window = '']) => window);
      for (const window of windows) expect(window).toMatch(/^\$__(rate_interval|range)$/);
      // What is of the process is known by the build beside it.
      const own = metricsOf(substituted(expr, times)).filter(
        (metric) => !/^(process|nodejs)_/.test(metric),
      );
      expect(expr.split('cluster=~"$cluster"').length - 1).toBe(own.length);
    }
  });

  test('targets are matched by their cluster too: pods of two may have one address', () => {
    for (const expr of panelsOf(name).flatMap(expressionsOf)) {
      expect(expr).not.toMatch(/\bon \((?=[^)]*instance)(?![^)]*cluster)/);
    }
  });

  test('legends name labels that the expression leaves', () => {
    for (const { targets = [] } of panelsOf(name)) {
      for (const { expr, legendFormat = '' } of targets) {
        const named = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = '']) => label);
        const left = groupedBy(substituted(expr, times));
        // What is not grouped keeps its labels.
        const isBare = left.length === 0 || expr.includes(' and on ');
        const lost = isBare ? [] : named.filter((label) => !left.includes(label));
        expect([legendFormat, lost]).toEqual([legendFormat, []]);
      }
    }
  });

  test('counters are asked for as rates, and histograms by their buckets or counts', () => {
    for (const expr of panelsOf(name).flatMap(expressionsOf)) {
      for (const metric of metricsOf(substituted(expr, times))) {
        if (!/_(total|bucket|count|sum)$/.test(metric)) continue;
        expect(expr).toMatch(new RegExp(`(rate|increase)\\(${metric}[{[]`));
      }
      if (expr.includes('histogram_quantile')) expect(expr).toMatch(/sum by \(le\b/);
    }
  });

  test('panels have ids of their own, fill their lines, and do not overlap', () => {
    const ids = board.panels.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    const cells = new Set<string>();
    let area = 0;
    for (const { gridPos } of board.panels) {
      const { x, y, w, h } = gridPos;
      expect(x + w).toBeLessThanOrEqual(24);
      area += w * h;
      for (let column = x; column < x + w; column++) {
        for (let line = y; line < y + h; line++) cells.add(`${column} ${line}`);
      }
    }
    expect(cells.size).toBe(area);
    const bottom = Math.max(...board.panels.map(({ gridPos: { y, h } }) => y + h));
    expect(area).toBe(bottom * 24);
  });
});

// --- links ---

const docs = '${auditor:raw}/docs/';

/** As GitHub makes them of headings. */
function anchorsOf(document: string): Set<string> {
  const text = readFileSync(join(folder, '../docs', document), 'utf8');
  const headings = [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) => heading);
  return new Set(
    headings.map((heading) =>
      heading
        .toLowerCase()
        .replace(/[^\w\- ]/g, '')
        .replaceAll(' ', '-'),
    ),
  );
}

/** Links of a board, of its panels and of the columns of its tables. */
function urlsOf(name: string): string[] {
  const { links, panels } = readBoard(name);
  const columns = panels.flatMap(({ fieldConfig }) =>
    (fieldConfig?.overrides ?? []).flatMap(({ properties }) =>
      properties.flatMap(({ id, value }) => (id === 'links' ? (value as { url: string }[]) : [])),
    ),
  );
  return [...links, ...panels.flatMap((panel) => panel.links ?? []), ...columns].flatMap(
    ({ url }) => url ?? [],
  );
}

test.each(all)('$name marks alerts and incidents of the selected clusters', ({ board }) => {
  const annotations = board.annotations.list;
  const marks = annotations.filter(({ name }) => name === 'Alerts' || name === 'Incidents');
  const metrics = marks.flatMap(({ expr = '' }) => metricsOf(substituted(expr, times)));
  expect(metrics).toEqual(['ALERTS', 'endpoint_auditor_incident_services']);
  for (const { expr } of marks) expect(expr).toContain('cluster=~"$cluster"');
});

test('severities are in order of harm: critical, warning, info', () => {
  for (const { name } of all) {
    for (const { type, title, targets = [], transformations = [] } of panelsOf(name)) {
      const isBySeverity = targets.some(({ expr }) => /by \(severity\b|severity="/.test(expr));
      if (!isBySeverity) continue;
      const order =
        type === 'table'
          ? transformations.map(({ id }) => id)
          : targets.map(({ legendFormat }) => legendFormat);
      const want = type === 'table' ? ['merge', 'sortBy', 'organize'] : severities;
      expect([title, order]).toEqual([title, want]);
    }
  }
});

test('lag in seconds has a logarithmic axis', () => {
  for (const { name } of all) {
    for (const { type, title, targets = [], fieldConfig } of panelsOf(name)) {
      const isLag = targets.some(({ expr }) => /histogram_quantile.*lag_seconds/.test(expr));
      if (type !== 'timeseries' || !isLag) continue;
      const scale = fieldConfig?.defaults.custom?.scaleDistribution;
      expect([title, scale]).toEqual([title, { type: 'log', log: 10 }]);
    }
  }
});

describe.each(names)('links of %s', (name) => {
  const urls = urlsOf(name);

  test('lead to sections of documents that there are', () => {
    const ours = urls.filter((url) => url.startsWith(docs));
    expect(ours.length).toBeGreaterThan(3);
    for (const url of ours) {
      const [document = '', anchor] = url.slice(docs.length).split('#');
      const anchors = anchorsOf(document);
      if (anchor === '${__data.fields.code}') {
        for (const code of Object.keys(catalogue)) expect(anchors).toContain(code);
      } else if (anchor === '${__data.fields.kind}') {
        for (const kind of incidentKinds) expect(anchors).toContain(kind);
      } else if (anchor !== undefined) expect(anchors).toContain(anchor);
    }
  });

  test('lead to other boards, and to what the auditor answers', () => {
    const uids = all.map(({ board }) => board.uid);
    const others = urls.filter((url) => !url.startsWith(docs));
    for (const url of others) {
      const [, uid] = /^\/d\/([\w-]+)\?\$\{__url_time_range\}/.exec(url) ?? [];
      const isAnswered = /^\$\{auditor:raw\}\/(findings\?q=|services\/|nodes\/|incidents\/)/.test(
        url,
      );
      expect([url, uids.includes(uid ?? '') || isAnswered]).toEqual([url, true]);
    }
    const { links } = readBoard(name);
    expect(links.map(({ title }) => title)).toEqual([
      ...['Boards', 'Runbook', 'Explain', 'Findings', 'Metrics'],
    ]);
  });

  test('columns that have links are there', () => {
    for (const { type, fieldConfig, targets = [] } of panelsOf(name)) {
      if (type !== 'table') continue;
      for (const { matcher, properties } of fieldConfig?.overrides ?? []) {
        if (!properties.some(({ id }) => id === 'links')) continue;
        for (const { expr } of targets) {
          expect(expr).toMatch(new RegExp(`by \\([^)]*\\b${matcher.options}\\b`));
        }
      }
    }
  });
});
