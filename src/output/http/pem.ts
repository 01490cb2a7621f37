// A check of the PEM files of TLS, for the web server, the agent and the client of agents.
//
// An empty text must not reach node:tls: an empty CA makes it trust every public authority, and an
// empty certificate makes each handshake fail.

import { createPrivateKey, X509Certificate } from 'node:crypto';

const parsers = {
  certificate: (text: string) => new X509Certificate(text),
  'private key': (text: string) => createPrivateKey(text),
} as const;

/** Returns the text, or throws an Error for people if it has no valid `kind`. */
export function checkPem(kind: keyof typeof parsers, text: string, source: string): string {
  try {
    parsers[kind](text);
    return text;
  } catch (error) {
    throw new Error(`${source} has no valid ${kind} in PEM`, { cause: error });
  }
}

/** Throws an Error for people if a key is not that of a certificate: one of two may be replaced. */
export function checkPair(cert: string, key: string, source: string): void {
  if (new X509Certificate(cert).checkPrivateKey(createPrivateKey(key))) return;
  throw new Error(`${source} is not the key of the certificate`);
}
