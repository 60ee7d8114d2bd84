import type { Check } from './check.js';

const PATIENCE_MS = 10_000;

interface Address {
  readonly url: string;
  readonly headers: Record<string, string>;
  readonly remedy: string;
}

/** Whether something answers well at an address that the operator configured. */
export async function checkAddress({ url, headers, remedy }: Address): Promise<Check> {
  try {
    const response = await fetch(url, { headers, signal: AbortSignal.timeout(PATIENCE_MS) });
    await response.body?.cancel();
    const { host } = new URL(url);
    if (response.ok) return { state: 'ok', text: `${host} answers` };
    return { state: 'fault', text: `${host} answers ${response.status}`, remedy };
  } catch (error) {
    const { cause, message } = error as Error;
    const reason = cause instanceof Error ? cause.message : message;
    return { state: 'fault', text: `no answer (${reason})`, remedy };
  }
}
