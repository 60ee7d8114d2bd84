import type { DidFault } from './did-resolver.js';

/** Refuses a DID; `detail` goes to the log and says what to change. */
export function refuseDid(code: DidFault['code'], detail: string): { readonly error: DidFault } {
  return { error: { code, detail } };
}
