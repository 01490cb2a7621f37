// What is wrong with a scenario of a node is reported with file, line and the faulty text.

import { describe, expect, test } from 'vitest';

import { parseScenario } from '../../scenarios/parse.ts';
import { createWorld, playStep, textFor, variants } from './play.ts';

const head = `# A scenario.
settle 0s
at 0s
  cluster pods=10.244.0.0/16
  node a ip=172.18.0.2 pods=10.244.1.0/24
  service shop/web clusterIP=10.96.0.10 port=http:80->8080
  slice shop/web-1 service=web  10.244.1.5, 10.244.2.5 : http 8080/TCP
  kube-proxy syncs
`;

/** The error of a scenario that ends with this statement. */
function errorOf(statement: string, variant = variants[0]): string {
  if (variant === undefined) throw new Error('No way to run it');
  try {
    const text = textFor(`${head}  ${statement}\n  expect none\n`, variant);
    const scenario = parseScenario('x.txt', text);
    const world = createWorld(scenario, variant);
    for (const step of scenario.steps) playStep(world, step);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  return 'none';
}

describe('a statement that cannot be done is named with file and line', () => {
  test.each([
    [
      'packet to nowhere',
      'Expected `packet from pod|node|outside IP to IP:PORT goes to …`: packet',
    ],
    ['packet from pod 10.0.0.1 to 10.96.0.10:80 goes to 10.0.0.5', 'Expected ENDPOINT, rejected'],
    [
      'packet from pod 10.0.0.1 to 10.96.0.10:80 goes to 10.0.0.5:80 twice',
      'Unknown word of a packet',
    ],
    ['packet from pod 10.0.0.1 to 10.96.0.10:80 is lost', 'Expected ENDPOINT, rejected, dropped'],
    ['rules', 'Expected `with` or `without`: '],
    ['rules without reason', 'Unknown rules to be without: reason'],
    ['rules without rejects of others', 'Unknown rules to be without: rejects of others'],
    ['rules with 90% of shop/db to its first endpoint', 'No two endpoints to choose from: shop/db'],
    [
      'rules with a rule of others that sings',
      'Unknown rules to be with: a rule of others that sings',
    ],
    [
      'kube-proxy sleeps',
      'Expected `kube-proxy syncs` or `kube-proxy syncs as if`: kube-proxy sleeps',
    ],
    ['kube-proxy syncs as if', 'Expected statements under `kube-proxy syncs as if`'],
    ['cluster nodes=10.0.0.0/8', 'Expected `cluster pods=CIDR`: cluster nodes=10.0.0.0/8'],
    ['service shop/web colour=red', 'Unknown word of a service: colour=red'],
    ['service shop/web nodePort', 'Expected nodePort=VALUE'],
    ['node a colour=red', 'Unknown word of a node: colour=red'],
    ['deployment shop/web', 'Unknown statement: deployment'],
  ])('%s', (statement, message) => {
    expect(errorOf(statement)).toContain(`x.txt:9: ${message}`);
  });

  test.each(variants)('of a statement under `as if`, its own line: $mode, $family', (variant) => {
    const statement =
      'kube-proxy syncs as if\n    service shop/web\n    service shop/web colour=red';
    expect(errorOf(statement, variant)).toContain(
      'x.txt:11: Unknown word of a service: colour=red',
    );
  });

  test('rules cannot lose what they do not have', () => {
    expect(errorOf('rules without all rules\n  rules without the marks')).toContain(
      'x.txt:10: There are no such rules: the marks',
    );
  });

  test('no node has an address', () => {
    const variant = variants[0] ?? { mode: 'iptables', family: 'IPv4' };
    const scenario = parseScenario(
      'x.txt',
      '# A.\nat 0s\n  node a\n  kube-proxy syncs\n  expect none\n',
    );
    const world = createWorld(scenario, variant);
    expect(() => scenario.steps.map((step) => playStep(world, step))).toThrow(
      'x.txt:4: No node has an address',
    );
  });
});

describe('the text of a scenario in one of the four ways', () => {
  const text = 'x 10.244.1.5:80 10.244.0.0/16 10.0.0.0/32 127.0.0.1\nin IPv6 a\n  b\nin nftables c';
  test.each([
    [
      { mode: 'iptables', family: 'IPv4' },
      'x 10.244.1.5:80 10.244.0.0/16 10.0.0.0/32 127.0.0.1\n\n\n',
    ],
    [
      { mode: 'nftables', family: 'IPv6' },
      'x [fd00:10:244:1::5]:80 fd00:10:244::/48 fd00:10::/128 ::1\na\n  b\nc',
    ],
  ] as const)('%o', (variant, want) => {
    expect(textFor(text, variant)).toBe(want);
  });
});
