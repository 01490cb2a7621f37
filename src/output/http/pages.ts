// The pages and what they load, as paths of the server: what each path and its query ask for. What
// stands behind them is asked of the auditor once per request; what a query says wrongly is taken
// as if it said nothing, since a page is for people.

import type { Express, Request, Response } from 'express';

import type { ServiceNumbers } from '../metrics/service-families.ts';
import { findAsset } from '../page/assets.ts';
import { renderFindings } from '../page/findings.ts';
import { renderFrame } from '../page/frame.ts';
import type { NodeView } from '../page/nodes.ts';
import { renderNode, renderNodes } from '../page/nodes.ts';
import { renderOverview } from '../page/overview.ts';
import type { ServiceView } from '../page/service.ts';
import { renderService } from '../page/service.ts';
import { renderServices } from '../page/services.ts';
import type { PageStatus } from '../page/status.ts';
import { compileTemplate } from '../page/template.ts';

/** What the pages ask. */
export interface PageAnswers {
  status(): PageStatus;
  /** The revision of the status, and the input's clock; asked once a second. */
  beat(): { readonly revision: string; readonly now: number };
  services(): Iterable<ServiceNumbers>;
  /** `from`: the first row of its table; null where there is no such Service. */
  servicePage(namespace: string, name: string, from: number): ServiceView | null;
  /** `port`: the Service port whose packets are walked; null where there is no such node. */
  nodePage(node: string, port: string | null): NodeView | null;
}

/** Words longer than any name are no names. */
const longest = 300;

function word(request: Request, name: string): string {
  const value = request.query[name];
  return typeof value === 'string' ? value.slice(0, longest) : '';
}

function count(request: Request, name: string, least: number): number {
  const value = Number(word(request, name));
  return Number.isSafeInteger(value) && value >= least ? value : least;
}

const missingTemplate = compileTemplate<{ what: string }>(`
<h1>Not there</h1><p class="lead"><%= it.what %></p>
<p><a href="/services">All Services</a> · <a href="/nodes">all nodes</a> ·
 <a href="/">overview</a></p>`);

function sendMissing(response: Response, status: PageStatus, what: string): void {
  const main = missingTemplate({ what });
  response
    .status(404)
    .type('html')
    .send(renderFrame(status, { place: '/', title: 'Not there', main }));
}

export function addPages(app: Express, answers: PageAnswers): void {
  app.get('/assets/:file', (request, response, next) => {
    const asset = findAsset(request.params.file);
    if (asset === null) {
      next();
      return;
    }
    response.set('Cache-Control', 'public, max-age=31536000, immutable');
    response.type(asset.type).send(asset.body);
  });
  app.get('/', (_request, response) => {
    response.type('html').send(renderOverview(answers.status()));
  });
  app.get('/findings', (request, response) => {
    const [q, state, severity] = ['q', 'state', 'severity'].map((one) => word(request, one));
    const query = { q: q ?? '', state: state ?? '', severity: severity ?? '' };
    const [output, code] = [word(request, 'output'), word(request, 'code')];
    const page = count(request, 'page', 1);
    response.type('html').send(renderFindings(answers.status(), { ...query, output, code, page }));
  });
  app.get('/services', (request, response) => {
    const [q, verdict] = [word(request, 'q'), word(request, 'verdict')];
    const query = { q, verdict, page: count(request, 'page', 1) };
    response.type('html').send(renderServices(answers.status(), answers.services(), query));
  });
  app.get('/services/:namespace/:name', (request, response) => {
    const { namespace, name } = request.params;
    const view = answers.servicePage(namespace, name, count(request, 'from', 0));
    const status = answers.status();
    if (view !== null) response.type('html').send(renderService(status, view));
    else sendMissing(response, status, `There is no Service ${namespace}/${name}.`);
  });
  app.get('/nodes', (request, response) => {
    response.type('html').send(renderNodes(answers.status(), word(request, 'q')));
  });
  app.get('/nodes/:name', (request, response) => {
    const { name } = request.params;
    const port = word(request, 'port');
    const view = answers.nodePage(name, port === '' ? null : port);
    const status = answers.status();
    if (view !== null) response.type('html').send(renderNode(status, view));
    else sendMissing(response, status, `There is no Node ${name}, and nothing is told of one.`);
  });
}
