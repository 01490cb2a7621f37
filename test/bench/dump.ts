// A dump of iptables-save as kube-proxy's iptables mode fills it on a large node, from a seed: in
// large-cluster form (no comments in chains of endpoints), nat and filter of one family. The rules
// of a chain are together, as iptables-save prints them.

/** A random number below `below`, from a linear congruential generator (Numerical Recipes). */
function generatorOf(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

export interface GeneratedDump {
  readonly text: string;
  /** Cluster IPs; the port is 80. */
  readonly frontends: readonly string[];
}

const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/** A number of Services, and the number of endpoints of each. */
export function generateDump(services: number, endpoints: number, seed: number): GeneratedDump {
  const random = generatorOf(seed);
  const hash = (): string => Array.from({ length: 16 }, () => letters[random(32)]).join('');
  const chains: string[] = [];
  const ofServices: string[] = [];
  const ofEndpoints: string[] = [];
  const dispatch: string[] = [];
  const frontends: string[] = [];
  for (let service = 0; service < services; service++) {
    const name = `KUBE-SVC-${hash()}`;
    const address = `10.${96 + (service >> 16)}.${(service >> 8) & 255}.${service & 255}`;
    const about = `-m comment --comment "team-${service % 40}/service-${service}:http cluster IP"`;
    frontends.push(address);
    chains.push(`:${name} - [0:0]`);
    const frontend = `-d ${address}/32 -p tcp ${about} -m tcp --dport 80`;
    dispatch.push(`-A KUBE-SERVICES ${frontend} -j ${name}`);
    ofServices.push(`-A ${name} ! -s 10.244.0.0/16 ${frontend} -j KUBE-MARK-MASQ`);
    for (let endpoint = 0; endpoint < endpoints; endpoint++) {
      const pod = `10.${128 + random(64)}.${random(256)}.${random(256)}`;
      const separate = `KUBE-SEP-${hash()}`;
      const left = endpoints - endpoint;
      const share = `-m statistic --mode random --probability ${(1 / left).toFixed(11)} `;
      chains.push(`:${separate} - [0:0]`);
      ofServices.push(`-A ${name} ${left > 1 ? share : ''}-j ${separate}`);
      ofEndpoints.push(`-A ${separate} -s ${pod}/32 -j KUBE-MARK-MASQ`);
      ofEndpoints.push(`-A ${separate} -p tcp -m tcp -j DNAT --to-destination ${pod}:8080`);
    }
  }
  return { text: textOf(chains, dispatch, [...ofServices, ...ofEndpoints]), frontends };
}

const header = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-FORWARD - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SERVICES - [0:0]
`;

const base = `-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
`;

const last = '-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\nCOMMIT\n';

const textOf = (chains: string[], dispatch: string[], rules: string[]): string =>
  `${header}${chains.join('\n')}\n${base}${rules.join('\n')}\n${dispatch.join('\n')}\n${last}`;
