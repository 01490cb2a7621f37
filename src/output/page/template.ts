// Templates of the pages: eta, with everything that is put into one escaped unless it says raw
// (`<%~ %>`), which only what another template made may be. What the cluster named can so be
// nothing but text, with nothing hidden in it (text.ts).

import { Eta } from 'eta/core';

import { escapeMarkup } from '../text/format.ts';

const eta = new Eta({
  autoEscape: true,
  autoTrim: [false, 'nl'],
  cache: false,
  escapeFunction: (value) => escapeMarkup(String(value)),
});

/** HTML that a template made: safe to be put into another as it is. */
export type Html = string & { readonly html: true };

export type Template<View extends object> = (view: View) => Html;

/** Compiles a template at its first use; in its text `it` is the view. */
export function compileTemplate<View extends object>(text: string): Template<View> {
  let compiled: ReturnType<typeof eta.compile> | null = null;
  return (view) => {
    compiled ??= eta.compile(text);
    return eta.render(compiled, view) as Html;
  };
}

export const noHtml = '' as Html;

export const joinHtml = (parts: Iterable<Html>): Html => [...parts].join('') as Html;
