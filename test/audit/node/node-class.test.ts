import { expect, test } from 'vitest';

import { createClassAudit } from '../../../src/audit/node/node-class.ts';
import { behaviorOfReport } from '../../../src/audit/node/observation.ts';
import { createProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import { defaultCiliumConfig } from '../../../src/model/cilium-config.ts';
import { defaultProxyConfig } from '../../../src/model/proxy-config.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import { node, service } from '../../build.ts';

test('nodes of Cilium with different labels for Services are of different classes', () => {
  const chosen = service({ ciliumAnnotations: { 'service.cilium.io/node': 'edge' } });
  const services = new Map([[chosen.key, chosen]]);
  const audit = createClassAudit(createProxyCache({ services, slices: new Map() }));
  const config = { ...defaultProxyConfig('cilium', 37), cilium: defaultCiliumConfig() };
  const noSenders = { node: null, pod: null, outside: null };
  const rules = behaviorOfReport({
    ...{ frontends: [], localAddresses: [], digests: new Map(), outcomes: new Map() },
    asking: { ip: noSenders, ip6: noSenders, addresses: [], pods: [], strays: false },
  });
  const portsWith = (ciliumNode: string | null): number =>
    runToEnd(audit({ node: node({ ciliumNode }), rules, config })).ports.length;
  expect([null, 'edge', 'other'].map(portsWith)).toEqual([0, 1, 0]);
});
