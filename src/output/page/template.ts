// Templates of the pages, rendered by eta. A template escapes all its values except raw ones
// (`<%~ %>`), which must be the result of another template. So a name from the cluster is never
// more than text, and has no invisible characters (text/format.ts).

import { Eta } from 'eta/core';

import { escapeMarkup } from '../text/format.ts';

const eta = new Eta({
  autoEscape: true,
  autoTrim: [false, 'nl'],
  cache: false,
  escapeFunction: (value) => escapeMarkup(String(value)),
});

/** The result of a template, which another template may contain as it is. */
export type Html = string & { readonly html: true };

/** Compiles a template at its first use; its text accesses the view as `it`. */
export function compileTemplate(text: string): (view: object) => Html {
  let compiled: ReturnType<typeof eta.compile> | null = null;
  return (view) => {
    compiled ??= eta.compile(text);
    return eta.render(compiled, view) as Html;
  };
}

export const noHtml = '' as Html;

export const joinHtml = (parts: Iterable<Html>): Html => [...parts].join('') as Html;
