// Which proxy the environment names for a server: as kubectl, which asks Go, finds it.

import { describe, expect, test } from 'vitest';

import { proxyFor } from '../../../../src/cluster/api/transport/proxy.ts';

const server = 'https://api.example.com:6443';
const secure = { HTTPS_PROXY: 'http://proxy:3128' };

describe('the proxy', () => {
  test.each([
    ['none', server, {}, null],
    ['of https', server, secure, 'http://proxy:3128'],
    ['in small letters', server, { https_proxy: 'http://small:1' }, 'http://small:1'],
    ['in capitals first', server, { ...secure, https_proxy: 'http://x:1' }, 'http://proxy:3128'],
    ['of http is not that of https', server, { HTTP_PROXY: 'http://other:1' }, null],
    ['of http', 'http://api.example.com', { HTTP_PROXY: 'http://other:1' }, 'http://other:1'],
    ['without a scheme', server, { HTTPS_PROXY: 'proxy:3128' }, 'http://proxy:3128'],
    ['with a password', server, { HTTPS_PROXY: 'http://a:b@p:1' }, 'http://a:b@p:1'],
    ['of SOCKS', server, { HTTPS_PROXY: 'socks5://proxy:1080' }, 'socks5://proxy:1080'],
    ['an empty one', server, { HTTPS_PROXY: '', https_proxy: '' }, null],
    ['never to localhost', 'https://localhost:6443', secure, null],
    ['never to loopback', 'https://127.8.9.1:6443', secure, null],
    ['never to loopback of IPv6', 'https://[::1]:6443', secure, null],
    ['to a name that begins so', 'https://localhost.example', secure, 'http://proxy:3128'],
  ])('%s', (_name, to, variables, want) => {
    expect(proxyFor(to, variables)).toBe(want);
  });

  test('an invalid URL is reported by the name of the variable, without the value', () => {
    const wrong = () => proxyFor(server, { HTTPS_PROXY: 'http://user:secret@:x' });
    expect(wrong).toThrow('HTTPS_PROXY is not the URL of a proxy');
    expect(wrong).not.toThrow(/secret/);
  });
});

describe('NO_PROXY', () => {
  const six = 'https://[fd00::1]:6443';
  test.each([
    ['*', server, true],
    ['other.com, *', server, true],
    ['example.com', server, true],
    ['EXAMPLE.com', server, true],
    ['api.example.com', server, true],
    ['.example.com', server, true],
    ['*.example.com', server, true],
    ['.api.example.com', server, false],
    ['ample.com', server, false],
    ['example.com:6443', server, true],
    ['example.com:443', server, false],
    ['example.com:443', 'https://api.example.com', true],
    ['example.com:80', 'http://api.example.com', true],
    ['', server, false],
    [' , ,', server, false],
    [':6443', server, false],
    ['10.0.0.1', 'https://10.0.0.1:6443', true],
    ['10.0.0.1:6443', 'https://10.0.0.1:6443', true],
    ['10.0.0.1:443', 'https://10.0.0.1:6443', false],
    ['10.0.0.10', 'https://10.0.0.1:6443', false],
    ['0.0.1', 'https://10.0.0.1:6443', false],
    ['10.0.0.0/8', 'https://10.200.0.1:6443', true],
    ['10.0.0.0/16', 'https://10.200.0.1:6443', false],
    ['10.0.0.0/33', 'https://10.0.0.1:6443', false],
    ['10.0.0.0/8', server, false],
    ['fd00::1', six, true],
    ['[fd00::1]', six, false],
    ['[fd00::1]:6443', six, true],
    ['[fd00::1]:443', six, false],
    ['fd00:0::/32', six, true],
    ['fd01::/32', six, false],
    ['10.0.0.0/8', six, false],
  ])('%j of %s: %s', (entries, to, isExempt) => {
    const variables = { ...secure, HTTP_PROXY: 'http://proxy:3128' };
    expect(proxyFor(to, { ...variables, NO_PROXY: entries }) === null).toBe(isExempt);
    expect(proxyFor(to, { ...variables, no_proxy: entries }) === null).toBe(isExempt);
  });
});
