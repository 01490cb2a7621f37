// Notes of incidents: which changes are noted, and what is measured for them.

import { describe, expect, test } from 'vitest';

import type { Finding } from '../../src/audit/finding/catalogue.ts';
import { noControllers } from '../../src/audit/incident/controllers.ts';
import { noImpacts } from '../../src/audit/incident/impact.ts';
import { createIncidents } from '../../src/audit/incident/incidents.ts';
import type { Auditor } from '../../src/auditor/auditor.ts';
import { createFrame, encodeFrame } from '../../src/history/frame.ts';
import { createNotes, openingsIn } from '../../src/history/notes.ts';
import { isFields } from '../../src/cluster/decode/json-fields.ts';
import { plainFinding } from '../build.ts';

/** Incidents of findings, the notes of them, and the Services whose impact was computed. */
function noted() {
  const asked: string[] = [];
  const open: Finding[] = [];
  const incidents = createIncidents({
    evidence: () => ({
      controllers: noControllers,
      changesOf: () => [],
      nodesOf: () => [],
      isRelabelled: () => false,
      readSince: () => 0,
    }),
    impacts: {
      ...noImpacts,
      ofService(key) {
        asked.push(key);
        return null;
      },
    },
    findings: () => open,
    live: true,
    keep: 2,
  });
  const samples = { history: { series: () => ({ at: [], changes: [], median: {}, longest: {} }) } };
  const notes = createNotes({ incidents, samples } as unknown as Auditor);
  return {
    asked,
    add: (finding: Finding): void => {
      incidents.add(finding);
      open.push(finding);
    },
    end: (finding: Finding, resolvedAt: number): void => {
      open.splice(open.indexOf(finding), 1);
      incidents.remove({ ...finding, resolvedAt });
    },
    /** The notes of one second as they are written. */
    linesAt: (at: number): string[] => {
      incidents.review(at, []);
      return notes.review(at);
    },
    /** The notes of one second: the object, the number of findings and the end of an incident. */
    review: (at: number) => {
      incidents.review(at, []);
      asked.length = 0;
      return notes.review(at).map((line) => {
        const { incident } = JSON.parse(line) as { incident?: unknown };
        if (!isFields(incident) || !Array.isArray(incident.findings)) return line;
        return [incident.object, incident.findings.length, incident.resolvedAt];
      });
    },
  };
}

const ofService = (service: string, code: Finding['code'] = 'slice-endpoint-missing'): Finding =>
  plainFinding(code, { service });

const [web, db] = ['Service shop/web', 'Service shop/db'];

describe('an incident', () => {
  test('is noted when it opens and when it ends', () => {
    const { add, end, review } = noted();
    const finding = ofService('web');
    add(finding);
    expect(review(50)).toEqual([[web, 1, null]]);
    expect(review(51)).toEqual([]);
    end(finding, 52);
    expect(review(52)).toEqual([[web, 1, 52]]);
    expect(review(53)).toEqual([]);
  });

  test('that gets findings each second is noted every 10 s, and no other one is measured', () => {
    const { add, asked, review } = noted();
    add(ofService('db'));
    add(ofService('web'));
    expect(review(50)).toHaveLength(2);
    add(ofService('web', 'endpoints-address-missing'));
    expect([review(51), asked]).toEqual([[], []]);
    add(ofService('web', 'slice-endpoint-unexpected'));
    expect([review(59), asked]).toEqual([[], []]);
    expect(review(60)).toEqual([[web, 3, null]]);
    expect(asked).not.toContain(db.slice(8));
    expect(asked).toContain(web.slice(8));
    expect(review(70)).toEqual([]);
  });
});

describe('what was open at the end', () => {
  const open = { at: 1, ...ofService('web'), resolvedAt: null };
  const other = { ...open, code: 'of-another-version' };

  /** An incident with a finding of each code. */
  function incidentOfBoth(): object {
    const { add, linesAt } = noted();
    add(ofService('web'));
    const [line = ''] = linesAt(50);
    const { incident } = JSON.parse(line) as { incident: { findings: object[] } };
    const { findings } = incident;
    return { ...incident, findings: [...findings, { ...findings[0], code: other.code }] };
  }

  /** The Services with findings that were open after these notes, and the unknown findings. */
  async function openAfter(...notes: readonly object[]) {
    const lines = notes.map((it) => `${JSON.stringify({ at: 1, ...it })}\n`).join('');
    const frame = await createFrame(
      { kind: 'notes', segment: 1, number: 0, at: 1 },
      Buffer.from(lines),
    );
    const files = { read: () => Promise.resolve(encodeFrame(frame)) };
    const counts: number[] = [];
    const segment = { name: 'a', number: 1, start: 1, bytes: 1 };
    const openings = await openingsIn(files, segment, (count) => counts.push(count));
    return [openings === null ? null : [...openings.keys()].map((it) => it.split(' ')[0]), counts];
  }

  test('is known without the findings whose codes are unknown, which are counted', async () => {
    const incident = incidentOfBoth();
    const first = { note: 'open', findings: [open, other], incidents: [incident], size: 1 };
    expect(await openAfter(first)).toEqual([['shop/web'], [2]]);
    const later = ['opened', 'resolved'].map((note) => ({ note, finding: other }));
    const all = [first, ...later, { note: 'incident', incident }];
    expect(await openAfter(...all)).toEqual([['shop/web'], [5]]);
  });

  test('is not known if a note has another form, or if all that was open is missing', async () => {
    const first = { note: 'open', findings: [open], incidents: [], size: 1 };
    expect(await openAfter(first, { note: 'resolved', finding: {} })).toEqual([null, []]);
    expect(await openAfter({ note: 'opened', finding: open })).toEqual([null, []]);
  });
});
