// The command `explain`: why a pod is, or is not, in a Service, on a dump or at a moment of a
// recording. It reads its input through the loop that audit and replay use (serve.ts), follows the
// subject while it reads, and prints one explanation.
//
// Exit codes as audit has them: 0 what is asked about is as it must be (also a pod that must not be
// in the Service), 1 a finding above information stands about it, 2 it does not exist or cannot be
// judged, or bad usage.

import type { Explanation, Subject } from '../audit/explain.ts';
import { explain } from '../audit/explain.ts';
import type { Journal, Moment } from '../audit/journal.ts';
import { createJournal } from '../audit/journal.ts';
import type { Sight } from '../audit/verdict.ts';
import { readDump } from '../cluster/dump.ts';
import type { RecordingEntry } from '../cluster/recording.ts';
import type { Key, Snapshot, WatchEvent } from '../model/objects.ts';
import { renderExplanation } from '../output/explain.ts';
import { replay } from '../replay.ts';
import type { Auditor } from '../serve.ts';
import { createAuditor } from '../serve.ts';
import type { Judged } from './options.ts';
import { recordingOf } from './replay.ts';
import { colour, fail, problemLog, terminalWidth } from './say.ts';

/** What the command line says besides the subject. */
export interface Explained extends Judged {
  readonly input?: readonly string[];
  readonly recording?: string;
  readonly at?: number;
  readonly namespace?: string;
  readonly output: 'text' | 'json';
}

/** Names as they were given: the namespace may be missing. */
interface Named {
  readonly namespace: string | null;
  readonly name: string;
}

/** What is asked about, before it is known in which namespace. */
interface Asked {
  readonly pod: Named | null;
  readonly service: Named | null;
  readonly address: string | null;
}

const usage = 'Expected service/NAME, pod/NAME, pod/NAME service/NAME or ip/ADDRESS';

const kinds: Readonly<Record<string, keyof Asked>> = {
  service: 'service',
  services: 'service',
  svc: 'service',
  pod: 'pod',
  pods: 'pod',
  po: 'pod',
  ip: 'address',
};

/**
 * What the words ask about, as kubectl writes names: `pod/web-1`, or `pod/shop/web-1` with the
 * namespace. Throws what is wrong with them.
 */
export function parseSubject(words: readonly string[], namespace: string | null): Asked {
  const asked: { -readonly [K in keyof Asked]: Asked[K] } = {
    pod: null,
    service: null,
    address: null,
  };
  for (const word of words) {
    const [kind = '', ...rest] = word.split('/');
    const field = kinds[kind.toLowerCase()];
    if (field === undefined || rest.length === 0 || rest.some((part) => part === '')) {
      throw new Error(`${usage}: "${word}" is none of them`);
    }
    if (asked[field] !== null) throw new Error(`${usage}: more than one ${kind}`);
    if (field === 'address') asked.address = rest.join('/');
    else if (rest.length > 2) throw new Error(`${usage}: "${word}" has too many parts`);
    else {
      const [first = '', name] = rest;
      asked[field] = name === undefined ? { namespace, name: first } : { namespace: first, name };
    }
  }
  const alone = asked.address !== null && (asked.pod !== null || asked.service !== null);
  if (words.length === 0 || alone) throw new Error(usage);
  return asked;
}

/** The keys that a name may stand for; without a namespace, of all namespaces. */
function keysOf({ namespace, name }: Named, held: ReadonlyMap<Key, { name: string }>): Key[] {
  if (namespace !== null) return [`${namespace}/${name}`];
  const keys: Key[] = [];
  for (const [key, object] of held) if (object.name === name) keys.push(key);
  return keys;
}

/** The one key that is meant; the namespace of what is asked beside it comes first. */
function keyOf(
  named: Named,
  held: ReadonlyMap<Key, { name: string }>,
  beside: Named | null,
): Key | null {
  const keys = keysOf(named, held);
  const near = beside?.namespace ?? null;
  const preferred = keys.find((key) => near !== null && key.startsWith(`${near}/`));
  if (preferred !== undefined) return preferred;
  const [key, ...others] = keys;
  if (others.length === 0) return key ?? null;
  throw new Error(`${keys.join(', ')} have that name: say which with -n NAMESPACE`);
}

const named = (key: Key | null): Named | null => {
  const [namespace, name] = key?.split('/') ?? [];
  return namespace === undefined || name === undefined ? null : { namespace, name };
};

/** The subject, once it is known where its objects are; null before that. */
function subjectOf({ pod, service, address }: Asked, snapshot: Snapshot): Subject | null {
  if (address !== null) return { kind: 'address', address };
  const podKey = pod === null ? null : keyOf(pod, snapshot.pods, service);
  const beside = (service?.namespace ?? null) === null ? named(podKey) : null;
  const serviceKey = service === null ? null : keyOf(service, snapshot.services, beside);
  if (pod === null) return serviceKey === null ? null : { kind: 'service', service: serviceKey };
  if (podKey === null) return null;
  if (service === null) return { kind: 'pod', pod: podKey };
  return serviceKey === null ? null : { kind: 'pair', pod: podKey, service: serviceKey };
}

/** What was never met, for the answer that says so. */
function missingSubject({ pod, service }: Asked): Subject {
  const key = ({ namespace, name }: Named): Key => `${namespace ?? 'default'}/${name}`;
  if (service === null) return { kind: 'pod', pod: key(pod ?? { namespace: null, name: '' }) };
  if (pod === null) return { kind: 'service', service: key(service) };
  return { kind: 'pair', pod: key(pod), service: key(service) };
}

const contextOf = (auditor: Auditor, maxEndpointsPerSlice: number): Sight => ({
  snapshot: auditor.store.snapshot,
  release: auditor.release(),
  maxEndpointsPerSlice,
  stale: auditor.stale(),
});

/** Replays a recording to the moment that is asked for, and follows the subject on the way. */
async function follow(
  auditor: Auditor,
  asked: Asked,
  path: string,
  options: Explained,
): Promise<{ subject: Subject | null; moments: readonly Moment[] }> {
  const entries = await recordingOf(path, auditor, problemLog().onProblem);
  let subject: Subject | null = null;
  let journal: Journal | null = null;
  const observe = (event: WatchEvent | null): void => {
    const ledger = auditor.ledger();
    if (ledger === null) return;
    const { snapshot } = auditor.store;
    const name = event?.object.name;
    if (
      subject === null &&
      (event === null || name === asked.pod?.name || name === asked.service?.name)
    )
      subject = subjectOf(asked, snapshot);
    if (subject === null) return;
    const first = journal === null;
    journal ??= createJournal(subject);
    const context = contextOf(auditor, options.maxEndpointsPerSlice);
    journal.observe(context, ledger, first ? null : event, auditor.now() ?? 0);
  };
  async function* watched(): AsyncGenerator<RecordingEntry> {
    let begun = false;
    for await (const entry of entries) {
      yield entry;
      if (!begun && auditor.ledger() !== null) observe(null);
      else if (entry.kind === 'event') observe(entry.event);
      begun ||= auditor.ledger() !== null;
    }
  }
  await replay(auditor, watched(), { speed: Infinity, until: options.at ?? null });
  observe(null);
  return { subject, moments: (journal as Journal | null)?.moments ?? [] };
}

function exitCodeOf({ found, verdict, severity }: Explanation): 0 | 1 | 2 {
  if (!found || verdict === 'unknown') return 2;
  return severity === null || severity === 'info' ? 0 : 1;
}

/** Explains what the words name; the exit code. */
export async function explainSubject(
  words: readonly string[],
  options: Explained,
): Promise<number> {
  const asked = parseSubject(words, options.namespace ?? null);
  const { input, recording } = options;
  if ((input === undefined) === (recording === undefined)) {
    fail('Expected either --input PATH or --recording FILE');
    return 2;
  }
  if (recording === undefined && options.at !== undefined) {
    fail('--at is for --recording: a dump is one moment');
    return 2;
  }
  const auditor = createAuditor({
    // A dump is one moment: there is nothing to wait for.
    settle: recording === undefined ? 0 : options.settle,
    release: options.kubernetesVersion ?? null,
    maxEndpointsPerSlice: options.maxEndpointsPerSlice,
  });
  let followed: { subject: Subject | null; moments: readonly Moment[] | null };
  if (recording !== undefined) followed = await follow(auditor, asked, recording, options);
  else {
    for await (const entry of readDump(input ?? [], problemLog().onProblem)) auditor.take(entry);
    followed = { subject: subjectOf(asked, auditor.store.snapshot), moments: null };
  }
  const ledger = auditor.ledger();
  if (ledger === null || !auditor.store.snapshot.knows('services')) {
    const why =
      recording === undefined ? '' : ', or --at comes before its first lists are complete';
    fail(`The input has no Services${why}: nothing to explain`);
    return 2;
  }
  const context = contextOf(auditor, options.maxEndpointsPerSlice);
  const explanation = explain(context, ledger, followed.subject ?? missingSubject(asked));
  const document = {
    format: 1,
    kind: 'explain',
    at: auditor.now(),
    ...explanation,
    history: followed.moments,
  } as const;
  process.stdout.write(
    renderExplanation(document, options.output, { colour, width: terminalWidth() }),
  );
  return exitCodeOf(explanation);
}
