// Shrinks a recording whose replay disagrees with what was the case: leaves out objects, changes
// and times for as long as the same disagreement remains.

import { readFileSync, writeFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { gunzipSync, gzipSync } from 'node:zlib';

import type { Tally } from '../auditor.ts';
import { report } from '../auditor.ts';
import type { Disagreement } from './oracle.ts';
import { checkReplay } from './replayed.ts';

interface Line {
  readonly text: string;
  readonly kind: string;
  readonly at: number;
  readonly type: string;
  /** `resource namespace/name`; '' for a line that is about no object. */
  readonly object: string;
  readonly namespace: string;
}

function lineOf(text: string): Line {
  const fields = JSON.parse(text) as {
    kind: string;
    at: number;
    resource?: string;
    type?: string;
    object?: { metadata: { namespace?: string; name?: string } };
  };
  const { kind, at, resource = '', type = '', object } = fields;
  const { namespace = '', name = '' } = object?.metadata ?? {};
  const isObject = kind === 'object' && type !== 'BOOKMARK';
  return {
    text,
    kind,
    at,
    type,
    namespace,
    object: isObject ? `${resource} ${namespace}/${name}` : '',
  };
}

const joined = (lines: readonly Line[]): string => lines.map(({ text }) => `${text}\n`).join('');

/** The code of the finding, or of the difference, that a disagreement is about. */
const codeOf = ({ text }: Disagreement): string =>
  /\b(?:endpoints|slice|mirror|left|address|pod|duplicate|managers|hints)-[a-z-]+/.exec(
    text,
  )?.[0] ?? '';

/** What must remain. */
interface Aim {
  readonly kind: Disagreement['kind'];
  readonly service: string;
  readonly code: string;
}

async function disagreementsIn(lines: readonly Line[], settle: number) {
  const text = joined(lines);
  const { wrong } = await checkReplay(
    () => ({ name: 'part', bytes: Readable.from([Buffer.from(text)]) }),
    settle,
  );
  return wrong;
}

async function remains(lines: readonly Line[], aim: Aim, settle: number): Promise<boolean> {
  const wrong = await disagreementsIn(lines, settle).catch(() => []);
  return wrong.some(
    (one) => one.kind === aim.kind && one.service === aim.service && codeOf(one) === aim.code,
  );
}

/** The objects at a moment as the first lists, and what comes after it. */
function startingAt(lines: readonly Line[], moment: number): Line[] {
  const held = new Map<string, Line>();
  const [header, ...rest] = lines;
  if (header === undefined) return [];
  const later = rest.filter(({ at, object }) => at >= moment || object === '');
  for (const line of rest) {
    if (line.at >= moment || line.object === '') continue;
    if (line.type === 'DELETED') held.delete(line.object);
    else held.set(line.object, line);
  }
  const first = [...held.values()].map((line) => {
    const fields = JSON.parse(line.text) as object;
    return { ...line, type: 'SYNC', text: JSON.stringify({ ...fields, type: 'SYNC' }) };
  });
  return [header, ...first, ...later];
}

/** Leaves out ever smaller parts of a list of units for as long as the aim remains. */
async function minimal<T>(
  units: readonly T[],
  isEnough: (kept: readonly T[]) => Promise<boolean>,
): Promise<readonly T[]> {
  let kept = units;
  for (
    let size = Math.ceil(units.length / 2);
    size >= 1;
    size = size === 1 ? 0 : Math.ceil(size / 2)
  ) {
    for (let from = 0; from < kept.length;) {
      const fewer = kept.toSpliced(from, size);
      if (await isEnough(fewer)) kept = fewer;
      else from += size;
    }
  }
  return kept;
}

async function shrunk(all: readonly Line[], aim: Aim, settle: number): Promise<readonly Line[]> {
  const isEnough = (lines: readonly Line[]) => remains(lines, aim, settle);
  const namespace = aim.service.slice(0, aim.service.indexOf('/'));
  let lines = all.filter((line) => line.namespace === '' || line.namespace === namespace);
  if (!(await isEnough(lines))) lines = [...all];
  lines = lines.filter(({ type }) => type !== 'BOOKMARK');
  // Halve the time from its beginning, then from its end.
  let [from, to] = [lines[0]?.at ?? 0, lines.at(-1)?.at ?? 0];
  for (let step = (to - from) / 2; step > 1; step /= 2) {
    const later = startingAt(lines, from + step);
    if (await isEnough(later)) [lines, from] = [later, from + step];
    const earlier = lines.filter(({ at, object }) => object === '' || at < to - step);
    if (await isEnough(earlier)) [lines, to] = [earlier, to - step];
  }
  const objects = [...new Set(lines.map(({ object }) => object))].filter((object) => object !== '');
  const keptObjects = await minimal(objects, (kept) => {
    const set = new Set(kept);
    return isEnough(lines.filter(({ object }) => object === '' || set.has(object)));
  });
  const set = new Set(keptObjects);
  lines = lines.filter(({ object }) => object === '' || set.has(object));
  const changes = lines.filter(({ type }) => type === 'ADDED' || type === 'MODIFIED');
  const keptChanges = await minimal(changes, (kept) => {
    const left = new Set(kept);
    return isEnough(lines.filter((line) => !changes.includes(line) || left.has(line)));
  });
  return lines.filter((line) => !changes.includes(line) || keptChanges.includes(line));
}

/** Writes a short recording for each kind of disagreement beside a recording. */
export async function shrink(path: string, settle: number, tally: Tally): Promise<void> {
  const bytes = readFileSync(path);
  const text = (path.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString();
  const lines = text.split('\n').filter(Boolean).map(lineOf);
  const known = new Set<string>();
  for (const one of await disagreementsIn(lines, settle)) {
    const aim = { kind: one.kind, service: one.service, code: codeOf(one) };
    const name = `${aim.kind}-${aim.code}`;
    if (known.has(name)) continue;
    known.add(name);
    const kept = await shrunk(lines, aim, settle);
    const target = path.replace(/(?:\.ndjson)?(?:\.gz)?$/, `-${name}.ndjson.gz`);
    writeFileSync(target, gzipSync(joined(kept)));
    report(tally, `${target}: ${kept.length} of ${lines.length} lines, ${aim.service}`, []);
  }
}
