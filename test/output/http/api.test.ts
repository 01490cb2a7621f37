// The JSON routes about Services, and the index of all routes.

import { afterAll, beforeAll, expect, test } from 'vitest';

import express from 'express';

import type { AuditorQueries } from '../../../src/auditor/queries.ts';
import type { LostConnection } from '../../../src/model/connection.ts';
import { addApi } from '../../../src/output/http/api.ts';
import { noIncidents } from '../../../src/output/page/incidents.ts';
import { listen } from '../../../src/output/http/server.ts';
import { lagReport, listedOf, moment, statusOf } from '../samples.ts';

type More = Pick<AuditorQueries, 'services' | 'unserved'> & { lost: LostConnection | null };

let more: More = {
  lost: null,
  services: () => [listedOf()],
  unserved: () => [],
};
let server: Awaited<ReturnType<typeof listen>>;

beforeAll(async () => {
  const app = express();
  const answers: Partial<AuditorQueries> = {
    status: () => statusOf(),
    beat: () => ({ revision: '1', now: moment, lost: more.lost, isLive: true }),
    services: () => more.services(),
    unserved: () => more.unserved(),
    incidents: () => noIncidents,
    incident: (id) => (id === 'web' ? ({} as ReturnType<AuditorQueries['incident']>) : null),
    service: () => ({ format: 1 }) as ReturnType<AuditorQueries['service']>,
    lag: () => lagReport,
    nodes: () => [],
    explain: () => ({ format: 1, found: true }) as unknown as ReturnType<AuditorQueries['explain']>,
    notReady: () => null,
  };
  addApi(app, answers as AuditorQueries);
  server = await listen(
    { express: app, endStreams: () => undefined },
    { host: '127.0.0.1', port: 0 },
  );
});

afterAll(() => server.close());

const get = (path: string): Promise<Response> =>
  fetch(`http://127.0.0.1:${String(server.port)}${path}`);

test('every path of the index has an answer', async () => {
  const { paths } = (await (await get('/api')).json()) as { paths: Record<string, string> };
  expect(Object.keys(paths)).toContain('/api/v1/services');
  // The events are a route of the server, since they are not compressed.
  for (const path of Object.keys(paths).filter((it) => !it.endsWith('/events'))) {
    const response = await get(path.replace(/\{\w+\}/g, 'web'));
    expect(response.headers.get('content-type'), path).toMatch(/json/);
    await response.body?.cancel();
  }
});

test('every answer names the lost connection whose last state it shows', async () => {
  const { paths } = (await (await get('/api')).json()) as { paths: Record<string, string> };
  const lost = { reason: 'dial', message: 'refused', advice: null, since: moment - 9 } as const;
  const documents = Object.keys(paths).filter((it) => !/\/(?:events|status)$/.test(it));
  expect(documents).toHaveLength(9);
  for (const value of [lost, null]) {
    more = { ...more, lost: value };
    for (const path of documents) {
      const document: unknown = await (await get(path.replace(/\{\w+\}/g, 'web'))).json();
      expect(document, path).toMatchObject({ format: 1, lost: value });
    }
  }
});

test('the Services have their health, and those without endpoints their reason', async () => {
  const health = {
    verdict: 'different',
    severity: 'critical',
    findings: { critical: 1, warning: 0, info: 2 },
  } as const;
  const unserved = 'no_ready_pod' as const;
  const row = {
    namespace: 'shop',
    name: 'web',
    reason: unserved,
    detail: 'none is ready',
    suppressed: null,
  };
  const share = { ...listedOf().share, unserved };
  more = { ...more, services: () => [listedOf({ health, share })], unserved: () => [row] };
  const ask = async (path: string): Promise<unknown> => (await get(path)).json();
  const service = { namespace: 'shop', name: 'web', ...health };
  expect(await ask('/api/v1/services')).toEqual({
    format: 1,
    now: moment,
    lost: null,
    services: [{ ...service, readyEndpoints: 2, withoutEndpoints: unserved }],
  });
  expect(await ask('/api/v1/services?severity=info')).toMatchObject({ services: [] });
  const path = '/api/v1/services-without-endpoints';
  expect(await ask(path)).toEqual({ format: 1, now: moment, lost: null, services: [row] });
  expect(await ask(`${path}?reason=node_missing`)).toMatchObject({ services: [] });
});

test('incidents have a list with filters, and one that is not known is not found', async () => {
  const list = await get('/api/v1/incidents?severity=critical');
  expect(await list.json()).toMatchObject({ standing: [], resolved: [] });
  expect((await get('/api/v1/incidents?kind=other')).status).toBe(400);
  expect((await get('/api/v1/incidents/other')).status).toBe(404);
});
