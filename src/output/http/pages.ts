// The routes of the pages and their assets: each queries the auditor once and renders the answer.
// Pages are for people, so an invalid parameter counts as absent.

import type { Express, Request, Response } from 'express';

import type { ServiceNumbers } from '../metrics/service-rows.ts';
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
import { markup } from '../page/template.ts';

/** The queries of the pages. */
export interface PageAnswers {
  status(): PageStatus;
  /** The revision of the status, and the input's clock; called once a second. */
  beat(): { readonly revision: string; readonly now: number };
  services(): Iterable<ServiceNumbers>;
  /** `from` is the first row of the table; null if the Service does not exist. */
  servicePage(namespace: string, name: string, from: number): ServiceView | null;
  /** `port` is the Service port of the traced packets; null if the node is unknown. */
  nodePage(node: string, port: string | null): NodeView | null;
}

/** Longer than any name. */
const maxLength = 300;

function readText(request: Request, name: string): string {
  const value = request.query[name];
  return typeof value === 'string' ? value.slice(0, maxLength) : '';
}

function readCount(request: Request, name: string, minimum: number): number {
  const value = Number(readText(request, name));
  return Number.isSafeInteger(value) && value >= minimum ? value : minimum;
}

function sendMissing(response: Response, status: PageStatus, what: string): void {
  const main = markup`
<h1>Not there</h1><p class="lead">${what}</p>
<p><a href="/services">All Services</a> · <a href="/nodes">all nodes</a> ·
 <a href="/">overview</a></p>`;
  const page = renderFrame(status, { place: '/', title: 'Not there', main });
  response.status(404).type('html').send(page);
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
  app.get('/', (_request, response) =>
    response.type('html').send(renderOverview(answers.status())),
  );
  app.get('/findings', (request, response) => {
    const query = {
      q: readText(request, 'q'),
      state: readText(request, 'state'),
      severity: readText(request, 'severity'),
      output: readText(request, 'output'),
      code: readText(request, 'code'),
      page: readCount(request, 'page', 1),
    };
    response.type('html').send(renderFindings(answers.status(), query));
  });
  app.get('/services', (request, response) => {
    const [q, verdict] = [readText(request, 'q'), readText(request, 'verdict')];
    const query = { q, verdict, page: readCount(request, 'page', 1) };
    response.type('html').send(renderServices(answers.status(), answers.services(), query));
  });
  app.get('/services/:namespace/:name', (request, response) => {
    const { namespace, name } = request.params;
    const view = answers.servicePage(namespace, name, readCount(request, 'from', 0));
    const status = answers.status();
    if (view !== null) response.type('html').send(renderService(status, view));
    else sendMissing(response, status, `There is no Service ${namespace}/${name}.`);
  });
  app.get('/nodes', (request, response) =>
    response.type('html').send(renderNodes(answers.status(), readText(request, 'q'))),
  );
  app.get('/nodes/:name', (request, response) => {
    const { name } = request.params;
    const view = answers.nodePage(name, readText(request, 'port') || null);
    const status = answers.status();
    if (view !== null) response.type('html').send(renderNode(status, view));
    else sendMissing(response, status, `There is no Node ${name}, and nothing is told of one.`);
  });
}
