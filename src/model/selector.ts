// Label selectors of Services: equality of every pair, as labels.Set.AsSelectorPreValidated of
// k8s.io/apimachinery@v0.36.3. An absent or empty selector selects nothing (pkg/controller/endpoint
// and k8s.io/endpointslice return before they list pods).

import type { Labels } from './objects.ts';

/** Whether the labels carry every pair of the selector; false for null and empty selectors. */
export function selects(selector: Labels | null, labels: Labels): boolean {
  if (selector === null) return false;
  let pairs = 0;
  for (const key in selector) {
    if (labels[key] !== selector[key] || !Object.hasOwn(labels, key)) return false;
    pairs++;
  }
  return pairs > 0;
}

export function equalLabels(a: Labels, b: Labels): boolean {
  if (a === b) return true;
  const keys = Object.keys(a);
  if (keys.length !== Object.keys(b).length) return false;
  return keys.every((key) => Object.hasOwn(b, key) && a[key] === b[key]);
}

/** `app=web,tier=front`, as kubectl and the API server take it. */
export const selectorText = (selector: Labels): string =>
  Object.entries(selector)
    .map(([key, value]) => `${key}=${value}`)
    .join(',');
