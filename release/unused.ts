// Modules of packages that the program never calls, and the plugin that leaves them out of the
// bundles. A package often imports all of itself at its start, so that the bundler cannot see what
// is unused. Each left-out module is replaced by one whose functions throw an Error with its name.
// Constructors do not, since packages make some objects at their start.

import type { Plugin } from 'esbuild';

/** Paths below node_modules, as regular expressions, and why nothing calls them. */
const unused: readonly (readonly [pattern: string, reason: string])[] = [
  ['@kubernetes/client-node/dist/gen/index.js', 'clients of APIs; KubeConfig makes none here'],
  ['undici/lib/(?:mock|cache|interceptor)/', 'requests are sent without mocks and interceptors'],
  ['undici/lib/web/', 'fetch, WebSocket and EventSource; requests have plain bodies'],
  ['undici/lib/dispatcher/(?:socks5|env-http|balanced|retry|h2c|round)', 'other dispatchers'],
  ['body-parser/', 'the web server reads no bodies'],
  ['pino/lib/transport.js', 'the log has no worker threads'],
  ['@opentelemetry/(?:exporter|otlp)-[a-z-]*grpc', 'traces are not sent by gRPC'],
  ['@opentelemetry/exporter-(?:logs|metrics)-', 'no logs and metrics are sent'],
  ['@opentelemetry/exporter-trace-otlp-http/', 'traces are sent as protobuf'],
  ['@opentelemetry/exporter-prometheus/', 'no metrics of the SDK'],
  ['@opentelemetry/sdk-metrics/', 'no metrics of the SDK'],
  ['@opentelemetry/propagator-b3/', 'no context is propagated'],
  ['@opentelemetry/configuration/', 'the SDK is not configured by a file'],
];

const module = (name: string): string => `
const absent = () => { throw new Error(${JSON.stringify(`${name} is not in the bundle`)}); };
const any = new Proxy(function () {}, {
  get: (target, key) => (key === 'prototype' || key === '__esModule' ? target[key] : any),
  apply: absent,
  construct: () => any,
});
module.exports = any;
`;

/** Leaves out the unused modules; adds the patterns that matched to `matched`. */
export function withoutUnused(matched: Set<string>): Plugin {
  const patterns = unused.map(([pattern]) => [pattern, new RegExp(`^${pattern}`)] as const);
  return {
    name: 'without-unused',
    setup(bundle) {
      bundle.onResolve({ filter: /./ }, async ({ path, pluginData, ...rest }) => {
        if (pluginData === 'resolved') return null;
        const found = await bundle.resolve(path, { ...rest, pluginData: 'resolved' });
        const [, name] = /^.*\/node_modules\/(.*)$/.exec(found.path) ?? [];
        const pattern = patterns.find(([, expression]) => expression.test(name ?? ''))?.[0];
        if (name === undefined || pattern === undefined) return null;
        matched.add(pattern);
        // Without its extension, which would say that it is an ES module.
        return { path: name.replace(/\.[cm]?js$/, ''), namespace: 'unused' };
      });
      bundle.onLoad({ filter: /./, namespace: 'unused' }, ({ path }) => ({
        contents: module(path),
        loader: 'js',
      }));
    },
  };
}

/** Throws an Error if a pattern matched no module. */
export function checkUnused(matched: ReadonlySet<string>): void {
  const lost = unused.filter(([pattern]) => !matched.has(pattern)).map(([pattern]) => pattern);
  if (lost.length > 0) throw new Error(`No module matches ${lost.join(' or ')}`);
}
