// The time of one explanation of every form: on the last state of the recording, whose nodes report
// their rules, and on a running server with 150,000 pods. CPU milliseconds of the process: of the
// first run, when nothing is warm, and the median and the most of the others.

import { auditorDefaults } from '../auditor-defaults.ts';
import { createReadStream } from 'node:fs';
import { join } from 'node:path';

import { explain } from '../../src/audit/explain/explain.ts';
import type { ExplainTarget } from '../../src/audit/explain/explanation.ts';
import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { nodeLookup, verdictInput } from '../../src/auditor/explanations.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import { resources } from '../../src/model/objects.ts';
import { eventOf, rawObjects } from './fleet.ts';
import type { Shape } from './generate.ts';
import { createFleet } from './generate.ts';
import { cpuMicros, round } from './measure.ts';

/** The question, its input, and milliseconds: of the first run, the median and the maximum. */
export type ExplainRow = readonly [string, string, number, number, number];

const runs = 21;

function measure(auditor: Auditor, subject: ExplainTarget): readonly [number, number, number] {
  const serviceAuditor = auditor.serviceAuditor();
  if (serviceAuditor === null) throw new Error('Nothing is judged');
  const spent: number[] = [];
  for (let run = 0; run < runs; run++) {
    const begun = cpuMicros();
    explain(verdictInput(auditor), serviceAuditor, subject, nodeLookup(auditor));
    spent.push((cpuMicros() - begun) / 1000);
  }
  const [first = 0, ...others] = spent;
  const sorted = others.sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)] ?? 0;
  return [round(first), round(median), round(sorted.at(-1) ?? 0)];
}

/** Every form of question, about the largest Service and one that selects nothing. */
function subjectsOf(auditor: Auditor): Record<string, ExplainTarget> {
  const audited = [...(auditor.serviceAuditor()?.audited.values() ?? [])].map(
    ({ record }) => record,
  );
  const largest = audited.reduce((a, b) => (b.members.size > a.members.size ? b : a));
  const nobody = audited.find(
    (one) => one.service?.selector !== null && one.members.size === 0 && one.service !== null,
  );
  const [member] = largest.members.keys();
  // Some nodes without rules come before the nodes that report their rules.
  const told = [...(auditor.nodes()?.verdicts.keys() ?? [])];
  const [node] = told.length > 0 ? told : [...auditor.store.listers.nodes.keys()];
  const front = audited.find(({ service }) => service?.clusterIP.includes('.') === true);
  if (member === undefined || nobody === undefined || node === undefined || front === undefined) {
    throw new Error('The cluster lacks something to ask about');
  }
  const [service, pod] = [largest.key, member.key];
  return {
    'service: the largest': { kind: 'service', service },
    'service: one that selects nothing': { kind: 'service', service: nobody.key },
    'pod of the largest Service': { kind: 'pod', pod },
    'pair of these two': { kind: 'pair', pod, service },
    'pair: the pod and the Service that selects nothing': {
      ...{ kind: 'pair', pod, service: nobody.key },
    },
    'address of the pod': { kind: 'address', address: member.ips[0] ?? '' },
    'address of nobody': { kind: 'address', address: '192.0.2.1' },
    'node and a Service': { kind: 'node', node, service: front.key, port: null },
  };
}

const measureAll = (auditor: Auditor, input: string): ExplainRow[] =>
  Object.entries(subjectsOf(auditor)).map(([form, subject]) => [
    form,
    input,
    ...measure(auditor, subject),
  ]);

const newAuditor = (): Auditor => createAuditor({ ...auditorDefaults });

async function ofRecording(): Promise<Auditor> {
  const auditor = newAuditor();
  const path = join(import.meta.dirname, '../recordings/shop.ndjson.gz');
  const source = { name: path, bytes: createReadStream(path) };
  for await (const entry of readRecording(source, () => undefined)) auditor.take(entry);
  return auditor;
}

const begun = 1_795_260_000;

/** A fleet with one Service more, which selects nothing but nearly does. */
function ofFleet(shape: Shape): Auditor {
  const auditor = newAuditor();
  const fleet = createFleet(shape);
  auditor.take({ kind: 'header', at: begun, kubernetes: 'v1.36.3', resources });
  for (const resource of resources) {
    for (const raw of rawObjects(fleet, resource)) {
      const event = eventOf(auditor.store, resource, 'added', raw, 1000, begun);
      auditor.take({ kind: 'event', event });
    }
    auditor.take({ kind: 'synced', resource, at: begun });
  }
  const [service] = auditor.store.listers.services.values();
  if (service === undefined) throw new Error('The fleet has no Service');
  const [[key, value] = ['', '']] = Object.entries(service.selector ?? {});
  const name = `${service.name}-nobody`;
  const meant = { name, key: `${service.namespace}/${name}`, uid: name };
  const object = { ...service, ...meant, selector: { [key]: `${value}x` } };
  const event = { resource: 'services', type: 'added', object, at: begun } as const;
  auditor.take({ kind: 'event', event });
  return auditor;
}

/** Explanations on both inputs, the larger one of this shape. */
export async function measureExplain(shape: Shape): Promise<ExplainRow[]> {
  const recording = measureAll(await ofRecording(), 'recording');
  const auditor = ofFleet(shape);
  const pods = auditor.store.listers.pods.size.toLocaleString('en');
  return [...recording, ...measureAll(auditor, `${pods} pods`)];
}
