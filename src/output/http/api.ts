// The JSON routes of the web server: findings, Services, nodes, lag and explanations.

import { pipeline } from 'node:stream/promises';

import type { Express, NextFunction, Request, Response } from 'express';

import { catalogue, type Finding, severities } from '../../audit/finding/catalogue.ts';
import { verdicts } from '../../audit/finding/verdicts.ts';
import { incidentKinds } from '../../audit/incident/kinds.ts';
import { unservedReasons } from '../../audit/service/unserved.ts';
import { verdictOutputs } from '../../audit/service/verdict.ts';
import type { AuditorQueries } from '../../auditor/queries.ts';
import { parseMoment } from './moments.ts';
import { createPause } from './turns.ts';

/** What each document has: the time of its state, and why it is old; null if it is not. */
function headOf(answers: AuditorQueries) {
  const { now, lost } = answers.beat();
  return { format: 1, now, lost } as const;
}

const sendError = (response: Response, status: number, error: string): Response =>
  response.status(status).json({ format: 1, error });

/** Of a parameter, for people; the response is 400. */
class InvalidQuery extends Error {}

/** The texts of a parameter, which may occur repeatedly. */
const textsOf = (value: unknown): string[] =>
  [value].flat().filter((text) => typeof text === 'string');

/** The parameters that select findings and Services, with their values; null: any text. */
const findingFilters = {
  namespace: null,
  service: null,
  code: Object.keys(catalogue),
  severity: severities,
  output: [...verdictOutputs, 'input'],
} as const;

const serviceFilters = {
  namespace: null,
  verdict: verdicts,
  severity: severities,
  withoutEndpoints: unservedReasons,
} as const;

const unservedFilters = { namespace: null, reason: unservedReasons } as const;

const incidentFilters = { kind: incidentKinds, severity: severities } as const;

/** Whether an item has the wanted values. Throws for an unknown parameter or value. */
function readFilter<Name extends string>(
  query: Request['query'],
  filters: Readonly<Record<Name, readonly string[] | null>>,
  others: readonly string[] = [],
): (item: Readonly<Record<Name, string | null>>) => boolean {
  const names = Object.keys(filters) as Name[];
  const known: readonly string[] = [...names, ...others];
  const odd = Object.keys(query).find((name) => !known.includes(name));
  if (odd !== undefined) {
    const choices = known.join(', ');
    throw new InvalidQuery(`Unknown parameter: ${JSON.stringify(odd)}; known are ${choices}`);
  }
  const wanted = names.flatMap((name) => {
    if (query[name] === undefined) return [];
    const values = textsOf(query[name]);
    if (values.length === 0) throw new InvalidQuery(`Expected text: ${name}`);
    const all = filters[name];
    const strange = values.find((value) => all?.includes(value) === false);
    if (strange !== undefined && all !== null) {
      throw new InvalidQuery(
        `Unknown ${name}: ${JSON.stringify(strange)}; known are ${all.join(', ')}`,
      );
    }
    return [{ name, values: new Set<string | null>(values) }];
  });
  return (item) => wanted.every(({ name, values }) => values.has(item[name]));
}

/** The filter of a query; `since` compares the last opening or resolution. Throws for people. */
function readFindingFilter(query: Request['query']): (finding: Finding) => boolean {
  const isWanted = readFilter(query, findingFilters, ['since']);
  const from = query.since === undefined ? -Infinity : parseMoment(query.since);
  if (from === null) throw new InvalidQuery('Expected Unix seconds or RFC 3339: since');
  return (finding) => (finding.resolvedAt ?? finding.openedAt) >= from && isWanted(finding);
}

/** Sends text as fast as the client reads it, with pauses; a disconnect ends it without error. */
export async function sendPieces(
  response: Response,
  pieces: Iterable<string> | AsyncIterable<string>,
  pause: () => Promise<void>,
): Promise<void> {
  async function* paced(): AsyncGenerator<string, void> {
    for await (const piece of pieces) {
      yield piece;
      await pause();
    }
  }
  await pipeline(paced, response).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  });
}

/** `?subject=pod/web-1&subject=service/web&namespace=shop`. */
function sendExplanation({ query }: Request, response: Response, answers: AuditorQueries): void {
  const [namespace = null] = textsOf(query.namespace);
  try {
    const document = answers.explain(textsOf(query.subject), namespace);
    if (document !== null) {
      const status = document.found ? 200 : 404;
      response.status(status).json({ ...document, lost: answers.beat().lost });
    } else sendError(response, 503, answers.notReady() ?? 'Not ready');
  } catch (error) {
    sendError(response, 400, error instanceof Error ? error.message : String(error));
  }
}

const itemsInPiece = 256;

/** Renders `,"name":[…]`, a member of a JSON object, in pieces. */
function* renderMember(name: string, items: readonly unknown[]): Generator<string, void> {
  yield `,${JSON.stringify(name)}:[`;
  for (let at = 0; at < items.length; at += itemsInPiece) {
    const text = JSON.stringify(items.slice(at, at + itemsInPiece));
    yield `${at === 0 ? '' : ','}${text.slice(1, -1)}`;
  }
  yield ']';
}

/** Sends a JSON object with long lists, in pieces. */
async function sendLists(
  response: Response,
  fields: object,
  lists: Readonly<Record<string, readonly unknown[]>>,
): Promise<void> {
  function* pieces(): Generator<string, void> {
    yield JSON.stringify(fields).slice(0, -1);
    for (const [name, items] of Object.entries(lists)) yield* renderMember(name, items);
    yield '}';
  }
  response.type('json');
  await sendPieces(response, pieces(), createPause());
}

/** What `/api` answers: each path with the meaning of its answer. */
const apiPaths = {
  '/api/v1/findings': 'Open and resolved findings',
  '/api/v1/incidents': 'Open and resolved incidents',
  '/api/v1/incidents/{id}': 'One incident with its evidence, changes and findings',
  '/api/v1/services': 'Every Service with its verdict, worst severity and number of findings',
  '/api/v1/services/{namespace}/{name}': 'Everything that is known about one Service',
  '/api/v1/services-without-endpoints': 'Services that cannot receive traffic, with the reason',
  '/api/v1/nodes': 'Nodes with the verdicts about their Service ports',
  '/api/v1/lag': 'Lag measurements',
  '/api/v1/explain': 'The answer of the explain command; subject=service/web&namespace=shop',
  '/api/v1/events': 'Server-sent events: the clock and the revision of the state',
};

/** Adds the routes below /api, which are read only. */
export function addApi(app: Express, answers: AuditorQueries): void {
  app.get(['/api', '/api/v1'], (_request, response) =>
    response.json({ format: 1, paths: apiPaths }),
  );
  // The worst first; there may be 10,000 open findings, and as many resolved ones.
  app.get('/api/v1/findings', ({ query }, response) => {
    const isWanted = readFindingFilter(query);
    const { metrics, resolved, forgotten } = answers.status();
    const standing = metrics.summary.findings.filter(isWanted);
    const lists = { standing, resolved: resolved.filter(isWanted) };
    return sendLists(response, { ...headOf(answers), forgotten }, lists);
  });
  app.get('/api/v1/incidents', ({ query }, response) => {
    const isWanted = readFilter(query, incidentFilters);
    const { open, resolved } = answers.incidents();
    const lists = { standing: open.filter(isWanted), resolved: resolved.filter(isWanted) };
    return sendLists(response, headOf(answers), lists);
  });
  app.get('/api/v1/incidents/:id', (request, response) => {
    const found = answers.incident(request.params.id);
    if (found !== null) response.json({ ...headOf(answers), incident: found });
    else sendError(response, 404, 'No such incident');
  });
  // Those with the worst findings first.
  app.get('/api/v1/services', ({ query }, response) => {
    const isWanted = readFilter(query, serviceFilters);
    const services = answers.services().map(({ namespace, name, share, health, conditions }) => {
      const { ready } = conditions;
      const withoutEndpoints = share.unserved;
      return { namespace, name, ...health, readyEndpoints: ready, withoutEndpoints };
    });
    return sendLists(response, headOf(answers), { services: services.filter(isWanted) });
  });
  app.get('/api/v1/services-without-endpoints', ({ query }, response) => {
    const isWanted = readFilter(query, unservedFilters);
    response.json({ ...headOf(answers), services: answers.unserved().filter(isWanted) });
  });
  app.get('/api/v1/lag', (_request, response) =>
    response.json({ ...answers.lag(), lost: answers.beat().lost }),
  );
  app.get('/api/v1/nodes', (_request, response) =>
    response.json({ ...headOf(answers), nodes: answers.nodes() }),
  );
  app.get('/api/v1/services/:namespace/:name', (request, response) => {
    const { namespace, name } = request.params;
    const found = answers.service(namespace, name);
    if (found !== null) response.json({ ...found, lost: answers.beat().lost });
    else sendError(response, 404, 'No such Service');
  });
  app.get('/api/v1/explain', (request, response) => sendExplanation(request, response, answers));
  app.use((error: unknown, _request: Request, response: Response, next: NextFunction) => {
    if (error instanceof InvalidQuery) sendError(response, 400, error.message);
    else next(error);
  });
}
