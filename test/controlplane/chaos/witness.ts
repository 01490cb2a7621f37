// Whether findings are true, for tests in which the controllers may be late without being
// disturbed, as on a busy machine: the log of the store decides.

import { createReadStream, rmSync } from 'node:fs';
import { join } from 'node:path';

import type { Found } from '../auditor.ts';
import type { ControlPlane } from '../controlplane.ts';
import { readHistory, timesOf } from './history.ts';
import { disagreements } from './oracle.ts';
import { startStoreLog } from './store-log.ts';

interface Witness {
  /** Ends the log; returns a text for each finding that is false. */
  readonly falseOf: (findings: readonly Found[], settle: number) => Promise<string[]>;
}

/** Begins to log what is stored, before anything of it can be found. */
export async function callWitness(plane: ControlPlane): Promise<Witness> {
  const path = join(plane.directory, 'witness.ndjson.gz');
  rmSync(path, { force: true });
  const log = await startStoreLog(plane.etcd, path, plane.version);
  return {
    async falseOf(findings, settle) {
      const probes = await log.stop();
      if (findings.length === 0) return [];
      const history = await readHistory({ name: path, bytes: createReadStream(path) }, true);
      const times = timesOf(history, probes);
      const evidence = { history, times, findings, faults: [], outages: [], settle };
      return disagreements(evidence).flatMap(({ kind, text }) => (kind === 'false' ? [text] : []));
    },
  };
}
