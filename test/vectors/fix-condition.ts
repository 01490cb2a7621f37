// Applies the change after which a failed condition passes, so that a test can compare the
// explanation with the desired state of the changed pod and Service.

import type { Condition, PodAndService } from '../../src/audit/explain/conditions.ts';
import type { Pod, Service } from '../../src/model/objects.ts';
import { node, servicePort } from '../build.ts';

const withPod = (pair: PodAndService, change: Partial<Pod>): PodAndService => ({
  ...pair,
  pod: { ...pair.pod, ...change },
});

const withService = (pair: PodAndService, change: Partial<Service>): PodAndService => ({
  ...pair,
  service: { ...pair.service, ...change },
});

/** Names the target of the Service port that the text of a failed port condition begins with. */
function fixPort(pair: PodAndService, text: string): PodAndService {
  const { service, pod } = pair;
  if (service.ports.length === 0) return withService(pair, { ports: [servicePort()] });
  const port = service.ports.find((known) => {
    const name = `${known.name === '' ? '' : `${known.name} `}${known.port}/${known.protocol}`;
    return text.slice('port '.length).split(/, |: /)[0] === name;
  });
  if (port === undefined) throw new Error(`No port of ${text}`);
  const { targetPort, protocol } = port;
  const added = { name: String(targetPort), protocol, port: port.port, sidecar: false };
  return withPod(pair, { ports: [...pod.ports, added] });
}

/** The pair after the change that a failed condition proposes. */
export function fixCondition(pair: PodAndService, { name, reason }: Condition): PodAndService {
  const { service, pod } = pair;
  switch (name) {
    case 'type':
      return withService(pair, { type: 'ClusterIP' });
    case 'selector': {
      const selector = { app: 'fixed' };
      const labels = { ...pod.labels, ...selector };
      return withPod(withService(pair, { selector }), { labels });
    }
    case 'namespace':
      return withPod(pair, { namespace: service.namespace });
    case 'labels':
      return withPod(pair, { labels: { ...pod.labels, ...service.selector } });
    case 'phase':
      return withPod(pair, { terminal: false });
    case 'address':
      return withPod(pair, { ips: ['192.0.2.1', '2001:db8::1'] });
    case 'family': {
      const ip = reason.text.includes('no IPv6 address') ? '2001:db8::1' : '192.0.2.1';
      return withPod(pair, { ips: [...pod.ips, ip] });
    }
    case 'node':
      return { ...withPod(pair, { node: pod.node === '' ? 'a-node' : pod.node }), node: node() };
    case 'deletion':
      return withPod(pair, { deleting: false });
    case 'port':
      return fixPort(pair, reason.text);
    case 'readiness':
      return withPod(pair, { ready: true });
  }
}
