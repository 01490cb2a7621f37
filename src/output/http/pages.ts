// The routes of the pages and their assets. An invalid parameter counts as absent.

import { extname } from 'node:path';

import type { Express, Request, Response } from 'express';

import type { AuditorQueries, PageStatus } from '../../auditor/queries.ts';
import { recordOf } from '../../model/counts.ts';
import { assets } from '../page/frame.ts';
import { findingFields, renderFindings } from '../page/findings.ts';
import { renderFrame } from '../page/frame.ts';
import { renderNode, renderNodes } from '../page/nodes.ts';
import { renderOverview } from '../page/overview.ts';
import { markup } from '../page/parts.ts';
import { renderService, renderServices, serviceFields } from '../page/services.ts';

type PageQueries = Pick<AuditorQueries, 'status' | 'services' | 'servicePage' | 'nodePage'>;

function readText(request: Request, name: string): string {
  const value = request.query[name];
  // No name has more than 300 characters.
  return typeof value === 'string' ? value.slice(0, 300) : '';
}

function readCount(request: Request, name: string, minimum: number): number {
  const value = Number(readText(request, name));
  return Number.isSafeInteger(value) && value >= minimum ? value : minimum;
}

const readQuery = <Name extends string>(request: Request, names: readonly Name[]) => ({
  ...recordOf(names, (name) => readText(request, name)),
  page: readCount(request, 'page', 1),
});

function sendMissing(response: Response, status: PageStatus, what: string): void {
  const main = markup`
<h1>Not there</h1><p class="lead">${what}</p>
<p><a href="/services">All Services</a> · <a href="/nodes">all nodes</a> ·
 <a href="/">overview</a></p>`;
  const page = renderFrame(status, '/', 'Not there', main);
  response.status(404).type('html').send(page);
}

export function addPages(app: Express, answers: PageQueries): void {
  for (const [path, text] of assets) {
    app.get(path, (_request, response) => {
      response.set('Cache-Control', 'public, max-age=31536000, immutable');
      response.type(extname(path)).send(text);
    });
  }
  app.get('/', (_request, response) =>
    response.type('html').send(renderOverview(answers.status())),
  );
  app.get('/findings', (request, response) => {
    const query = readQuery(request, findingFields);
    response.type('html').send(renderFindings(answers.status(), query));
  });
  app.get('/services', (request, response) => {
    const query = readQuery(request, serviceFields);
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
