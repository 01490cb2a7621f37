// What is wrong with a scenario is said with file and line.

import { describe, expect, test } from 'vitest';

import { parseScenario } from './parse.ts';
import { compile } from './play.ts';

const head = '# A scenario.\n\nkubernetes 1.36\nsettle 30s\n\n';

/** The error that a scenario's text yields, by parsing or by doing what it says. */
function errorOf(text: string): string {
  try {
    compile(parseScenario('x.txt', text));
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  return 'none';
}

describe('a scenario that cannot be read', () => {
  test.each<[string, string, string]>([
    ['no comment', 'at 0s\n  expect none\n', '1: No comment that tells what the scenario is'],
    ['no steps', '# A scenario.\n', '1: No steps'],
    ['unknown setting', '# A.\nsettel 30s\n', '2: Unknown setting: settel'],
    ['unknown release', '# A.\nkubernetes 1.9\n', '2: Unknown release: 1.9'],
    ['bad window', '# A.\nsettle 30\n', '2: Expected a duration: 30'],
    ['unknown resource', '# A.\nwithout secrets\n', '2: Unknown resource: secrets'],
    ['late setting', `${head}at 0s\n  expect none\nsettle 9s\n`, '8: Setting after the first step'],
    ['late start', `${head}at 5s\n  expect none\n`, '6: The first step must be `at 0s`'],
    ['bad time', `${head}at once\n  expect none\n`, '6: Expected a duration: at once'],
    ['time goes back', `${head}at 0s\nat 0s\n  expect none\n`, '7: Step not later than the one'],
    ['nothing expected', `${head}at 0s\n  node a\n`, '6: No `expect` in the last step'],
    ['tab', `${head}at 0s\n\tnode a\n`, '7: Tab where a space should be'],
    ['loose line', `${head}  node a\n`, '6: Expected no lines under a setting'],
    ['ragged', `${head}at 0s\n    node a\n  expect none\n`, '8: Unexpected indentation'],
    ['late statement', `${head}at 0s\n  expect none\n  node a\n`, '8: Statement after what is'],
    ['two tables', `${head}at 0s\n  expect none\n  expect none\n`, '8: Second `expect`'],
    ['empty table', `${head}at 0s\n  expect\n`, '7: Expected `none` or a table'],
    ['strange table', `${head}at 0s\n  expect peace\n`, '7: Unknown expectation: peace'],
    ['bad lag', `${head}at 0s\n  lag all\n`, '7: Expected `lag none`'],
    ['empty lag', `${head}at 0s\n  lag\n`, '7: Expected `lag none`, or `lag` and lines'],
    ['bad verdict', `${head}at 0s\n  verdict web conform\n`, '7: Expected `verdict NAMESPACE'],
  ])('%s', (_, text, message) => {
    expect(errorOf(text)).toContain(`x.txt:${message}`);
  });

  test.each<[string, string]>([
    ['warning shop/web endpoints', 'Expected 7 columns'],
    ['bad shop/web endpoints endpoints-missing - open 0s', 'Expected critical, warning, info: bad'],
    ['info shop/web endpoints endpoints-missing - here 0s', 'Expected pending, open, resolved'],
    ['info shop/web endpoints endpoints-missing - open now', 'Expected a duration: now'],
    ['info shop/web endpoints endpoints-missing - open 0s says x', 'Expected `mentions "TEXT"`'],
  ])('row: %s', (row, message) => {
    expect(errorOf(`${head}at 0s\n  expect\n    ${row}\n`)).toContain(`x.txt:8: ${message}`);
  });
});

describe('a statement that cannot be done', () => {
  const pod = 'pod shop/web-1 ip=10.0.0.1 ready';
  test.each<[string, string]>([
    ['deployment shop/web', 'Unknown statement: deployment'],
    ['pod', 'Expected a name after pod'],
    ['pod web-1 ready', 'Expected NAMESPACE/NAME: web-1'],
    ['pod shop/web-1', 'Expected `ready` or `not-ready` of a new pod'],
    ['pod shop/web-1 ready colour=red', 'Unknown word of a pod: colour=red'],
    ['pod shop/web-1 ready ports=http', 'Expected NAME:NUMBER/PROTOCOL: http'],
    ['node a color=red', 'Unknown word of a node: color=red'],
    ['service shop/web port=http', 'Expected NAME:PORT->TARGET/PROTOCOL: http'],
    ['service shop/web sticky', 'Unknown word of a service: sticky'],
    ['endpoints shop/web 10.0.0.1(web-9) : 80/TCP', 'No pod of this name was ever made'],
    ['endpoints shop/web 10.0.0.1 : http', 'Expected a port as `http 8080/TCP`: http'],
    ['endpoints shop/web 10.0.0.1 maybe : 80/TCP', 'Unknown word of an address in Endpoints'],
    ['endpoints shop/web owner=none', 'Unknown word of Endpoints: owner=none'],
    ['slice shop/x owner=service/web', 'No such owner was ever made: service/web'],
    ['slice shop/x owner=web', 'Expected service/NAME or endpoints/NAME: web'],
    ['slice shop/x 10.0.0.1 : 80/TCP ; 10.0.0.2 : 81/TCP', 'A slice has one list of ports'],
    ['slice shop/x 10.0.0.1 ready=perhaps : 80/TCP', 'Expected true, false or absent'],
    ['slice shop/x 10.0.0.1 wet : 80/TCP', 'Unknown word of an endpoint: wet'],
    ['slice shop/x purpose=none', 'Unknown word of a slice: purpose=none'],
    ['delete pod shop/web-7', 'No such object: pod shop/web-7'],
    ['delete deployment shop/web', 'Unknown kind to delete: deployment'],
    ['delete pod', 'Expected names to delete'],
    ['controllers', 'Expected `controllers sync`'],
  ])('%s', (statement, message) => {
    const text = `${head}at 0s\n  ${pod}\n  ${statement}\n  expect none\n`;
    const repeated = statement.startsWith('pod shop/web-1')
      ? text.replace(`  ${pod}\n`, '\n')
      : text;
    expect(errorOf(repeated)).toContain(`x.txt:8: ${message}`);
  });

  test.each<[string, string]>([
    ['apiVersion: v1\n    kind: Secret', 'Unknown kind: v1 Secret'],
    ['apiVersion: v1\n    kind: Pod', 'Expected metadata.name'],
    ['{', 'Flow map'],
  ])('apply %s', (manifest, message) => {
    const text = `${head}at 0s\n  apply\n    ${manifest}\n  expect none\n`;
    expect(errorOf(text)).toMatch(new RegExp(`^x\\.txt:7: .*${message}`, 's'));
  });
});

test('a scenario is settings, steps, statements and what is expected', () => {
  const scenario = parseScenario(
    'x.txt',
    '# What happened. And more.\nkubernetes 1.33\nsettle 1m\nwithout nodes # so\n' +
      'max-endpoints-per-slice 250\nat 0s\n  node a # here\n  pod shop/web-1\n    ready\n' +
      'at 1.5s\n  expect\n    info shop/web input left-behind - open 0s mentions "a b"\n' +
      '  verdict shop/web endpoints unknown pods-not-known\n',
  );
  expect(scenario).toMatchObject({
    title: 'What happened.',
    window: 60,
    maxEndpointsPerSlice: 250,
  });
  expect(scenario.release.minor).toBe(33);
  expect([...scenario.delivered]).not.toContain('nodes');
  expect(scenario.steps.map(({ at, line }) => [at, line])).toEqual([
    [0, 6],
    [1.5, 10],
  ]);
  expect(scenario.steps[0]?.statements.map(({ words }) => words)).toEqual([
    ['node', 'a'],
    ['pod', 'shop/web-1'],
  ]);
  expect(scenario.steps[1]?.findings?.rows[0]?.mentions).toEqual(['a b']);
  expect(scenario.steps[1]?.verdicts[0]?.verdict).toBe('unknown pods-not-known');
});
