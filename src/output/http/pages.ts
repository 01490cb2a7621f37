// The routes of the pages and of their assets. An invalid parameter counts as absent.

import { extname } from 'node:path';

import type { Express, Request, Response } from 'express';

import type { AuditorQueries, PageStatus } from '../../auditor/queries.ts';
import { recordOf } from '../../model/collections.ts';
import { renderNode, renderService } from '../page/details.ts';
import { readDocumentFile } from '../page/document-files.ts';
import { renderDocument } from '../page/documents.ts';
import { assets, renderFrame } from '../page/frame.ts';
import { incidentPath, renderIncidentPage, renderIncidentsPage } from '../page/incidents.ts';
import {
  findingFields,
  nodeFields,
  renderFindings,
  renderFindingsCsv,
  renderNodes,
} from '../page/lists.ts';
import { renderOverview } from '../page/overview.ts';
import { markup } from '../page/parts.ts';
import {
  renderServices,
  renderServicesCsv,
  renderUnservedPage,
  serviceFields,
  unservedFields,
} from '../page/service-list.ts';
import { matchPath, onlyMatch, renderPod, renderSearch } from '../page/search.ts';
import { keepQuery } from '../page/time-bar.ts';
import { sendPieces } from './api.ts';
import { createPause } from './turns.ts';

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

/** Sends a table that a browser saves as a file. */
async function sendCsv(response: Response, name: string, pieces: Iterable<string>): Promise<void> {
  response.type('csv').attachment(name);
  await sendPieces(response, pieces, createPause());
}

/** Sends a page whose links to other moments have the query of the request. */
function sendPage(response: Response, page: string): void {
  // Not every path that a client sends is a valid URL.
  const query = /\?.*/s.exec(response.req.originalUrl)?.[0] ?? '';
  response.type('html').send(keepQuery(page, new URLSearchParams(query)));
}

function sendMissing(response: Response, status: PageStatus, what: string): void {
  const main = markup`
<h1>Not found</h1><p class="lead">${what}</p>
<p><a href="/services">All Services</a> · <a href="/nodes">all nodes</a> ·
 <a href="/">overview</a></p>`;
  const page = renderFrame(status, '/', 'Not found', main);
  sendPage(response.status(404), page);
}

const inShard = ({ shard }: PageStatus): string => (shard === null ? '' : ` in shard ${shard}`);

export function addPages(app: Express, answers: AuditorQueries): void {
  for (const [path, text] of assets) {
    app.get(path, (_request, response) => {
      response.set('Cache-Control', 'public, max-age=31536000, immutable');
      response.type(extname(path)).send(text);
    });
  }
  app.get('/', (_request, response) =>
    sendPage(response, renderOverview(answers.status(), answers.unserved(), answers.incidents())),
  );
  app.get('/incidents', (_request, response) =>
    sendPage(response, renderIncidentsPage(answers.status(), answers.incidents())),
  );
  app.get('/incidents/:id', (request, response) => {
    const incident = answers.incident(request.params.id);
    const status = answers.status();
    if (incident === null) sendMissing(response, status, 'There is no such incident.');
    else if (incident.id !== request.params.id) response.redirect(incidentPath(incident.id));
    else sendPage(response, renderIncidentPage(status, incident));
  });
  app.get('/findings', (request, response) => {
    const query = readQuery(request, findingFields);
    sendPage(response, renderFindings(answers.status(), query));
  });
  app.get('/services', (request, response) => {
    const query = readQuery(request, serviceFields);
    sendPage(response, renderServices(answers.status(), answers.services(), query));
  });
  app.get('/unserved', (request, response) => {
    const query = readQuery(request, unservedFields);
    const page = renderUnservedPage(answers.status(), answers.unserved(), query);
    sendPage(response, page);
  });
  app.get('/services/:namespace/:name', (request, response) => {
    const { namespace, name } = request.params;
    const view = answers.servicePage(namespace, name, readCount(request, 'from', 0));
    const status = answers.status();
    if (view !== null) sendPage(response, renderService(status, view));
    else
      sendMissing(response, status, `There is no Service ${namespace}/${name}${inShard(status)}.`);
  });
  app.get('/nodes', (request, response) =>
    sendPage(response, renderNodes(answers.status(), readQuery(request, nodeFields))),
  );
  app.get('/nodes/:name', (request, response) => {
    const { name } = request.params;
    const view = answers.nodePage(name, readText(request, 'port') || null);
    const status = answers.status();
    if (view !== null) sendPage(response, renderNode(status, view));
    else sendMissing(response, status, `There is no Node ${name}, and no rules of it were read.`);
  });
  app.get('/pods/:namespace/:name', (request, response) => {
    const { namespace, name } = request.params;
    const view = answers.podPage(namespace, name);
    const status = answers.status();
    if (view !== null) sendPage(response, renderPod(status, view));
    else sendMissing(response, status, `There is no pod ${namespace}/${name}.`);
  });
  app.get('/search', (request, response) => {
    const result = answers.search(readText(request, 'q'));
    const [only, status] = [onlyMatch(result), answers.status()];
    // A redirection would leave the moment of the history.
    if (only !== null && status.at === null) response.redirect(matchPath(only));
    else sendPage(response, renderSearch(status, result));
  });
  addTables(app, answers);
  addDocuments(app, answers);
}

function addTables(app: Express, answers: AuditorQueries): void {
  app.get('/findings.csv', (request, response) => {
    const query = readQuery(request, findingFields);
    return sendCsv(response, 'findings.csv', renderFindingsCsv(answers.status(), query));
  });
  app.get('/services.csv', (request, response) => {
    const query = readQuery(request, serviceFields);
    return sendCsv(response, 'services.csv', renderServicesCsv(answers.services(), query));
  });
}

function addDocuments(app: Express, answers: AuditorQueries): void {
  app.get('/docs', (_request, response) => response.redirect('/docs/README.md'));
  app.get('/docs/images/:name', (request, response) => {
    const { name } = request.params;
    const image = readDocumentFile(`images/${name}`);
    if (image !== null) response.type(extname(name)).send(image);
    else sendMissing(response, answers.status(), `There is no image ${name}.`);
  });
  app.get('/docs/:name', (request, response) => {
    const status = answers.status();
    const page = renderDocument(status, request.params.name);
    if (page !== null) sendPage(response, page);
    else sendMissing(response, status, `There is no document ${request.params.name}.`);
  });
}
