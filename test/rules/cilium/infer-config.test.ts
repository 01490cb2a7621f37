// The configuration that the maps of recordings show is the one that Cilium had.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { expect, test } from 'vitest';
import { parse } from 'yaml';

import { readCiliumConfig } from '../../../src/cluster/decode/cilium-config.ts';
import { ciliumConfigIn } from '../../../src/rules/cilium/infer-config.ts';
import { readMapsDump } from '../../../src/rules/cilium/maps-dump.ts';
import { ciliumFoldersBelow } from '../../nodes/folder.ts';

const recordings = ciliumFoldersBelow(join(import.meta.dirname, '../../nodes/cilium/recordings'));

const entriesIn = (path: string) =>
  readMapsDump(gunzipSync(readFileSync(join(path, 'lb-maps.txt.gz'))).toString()).entries;

test.each(recordings)('%s', (path) => {
  const { config, nodeAddresses } = parse(
    readFileSync(join(path, 'proxy-config.yaml'), 'utf8'),
  ) as { config: unknown; nodeAddresses: string[] };
  const { nodePortAddresses, ...found } = ciliumConfigIn(entriesIn(path));
  const given = readCiliumConfig(config);
  // No entry shows these.
  const hidden = { serviceTopology: null, nodePortRange: [30_000, 32_767], serviceProxyName: '' };
  expect({ ...found, nodePortAddresses: [] }).toEqual({ ...given, ...hidden });
  const hasNodePorts = given.serviceProxyName === '';
  expect(nodePortAddresses.toSorted()).toEqual(hasNodePorts ? nodeAddresses.toSorted() : []);
});

test('one odd flag is no setting', () => {
  const [path = ''] = recordings.filter((it) => it.endsWith('b-topology'));
  const entries = entriesIn(path);
  const master = entries.find((it) => it.kind === 'service' && it.flags === 0);
  if (master?.kind !== 'service') throw new Error('No cluster IP');
  const odd = { ...master, flags: 1 << 6 };
  const found = ciliumConfigIn(entries.map((it) => (it === master ? odd : it)));
  expect(found.externalClusterIP).toBe(false);
});
