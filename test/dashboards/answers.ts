// What a Prometheus answers to the expressions of panels, as Grafana would ask.

import { ask } from '../prometheus/server.ts';
import type { Panel } from './boards.ts';
import { substituted } from './boards.ts';
import type { Span } from './history.ts';

export interface Series {
  readonly metric: Readonly<Record<string, string>>;
  readonly values: readonly (readonly [number, string])[];
}

export interface Answered {
  readonly panel: Panel;
  readonly answers: readonly {
    readonly expr: string;
    readonly legend: string;
    readonly series: readonly Series[];
  }[];
}

/** All panels over all the time that there is, also those that Grafana asks for its end only. */
export async function answersFor(
  url: string,
  panels: readonly Panel[],
  { from, to }: Span,
  step: number,
): Promise<Answered[]> {
  // Four scrapes, as Grafana takes it.
  const times = { rateInterval: `${4 * step}s`, range: `${Math.ceil(to - from)}s` };
  const answered: Answered[] = [];
  for (const panel of panels) {
    const answers = (panel.targets ?? []).map(async ({ expr, legendFormat = '' }) => {
      const query = substituted(expr, times);
      const span = { start: String(from), end: String(to), step: String(step) };
      const { result } = await ask<{ result: readonly Series[] }>(url, 'query_range', {
        query,
        ...span,
      });
      return { expr: query, legend: legendFormat, series: result };
    });
    answered.push({ panel, answers: await Promise.all(answers) });
  }
  return answered;
}
