import { variable } from '../config/environment.js';
import type { Check } from './check.js';

const PATIENCE_MS = 10_000;

/** What an oracle does not ask, whatever is there. */
const REFUSALS: ReadonlySet<unknown> = new Set(['address_refused', 'scheme_refused']);

interface Address {
  readonly url: string;
  readonly headers: Record<string, string>;
  readonly remedy: string;
  /** What the oracle itself would ask with. */
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>;
}

/** Whether something answers well at an address that the operator configured. */
export async function checkAddress({ url, headers, remedy, fetch }: Address): Promise<Check> {
  try {
    const response = await fetch(url, { headers, signal: AbortSignal.timeout(PATIENCE_MS) });
    await response.body?.cancel();
    const { host } = new URL(url);
    if (response.ok) return { state: 'ok', text: `${host} answers` };
    return { state: 'fault', text: `${host} answers ${response.status}`, remedy };
  } catch (error) {
    const { cause, message, code } = error as Error & { readonly code?: unknown };
    if (REFUSALS.has(code)) return { state: 'fault', text: message, remedy: opening(url) };
    const reason = cause instanceof Error ? cause.message : message;
    return { state: 'fault', text: `no answer (${reason})`, remedy };
  }
}

function opening(url: string): string {
  const allowed = [variable('OUTGOING_ALLOW'), new URL(url).host].filter(Boolean).join(',');
  return `Set OUTGOING_ALLOW=${allowed} in the environment or in .env`;
}
