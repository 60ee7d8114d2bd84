import type { FaultKind } from '@sibyl/protocol';
import { ModelFault } from './model-fault.js';

/** A provider's own account of why it gave no answer; `text` may hold anything and is never shown whole. */
export interface Refusal {
  readonly status: number;
  readonly text: string;
  /** Words for programs, such as `insufficient_quota`. */
  readonly code?: string;
  readonly retryAfterSeconds?: number | undefined;
}

const sentences: Readonly<Record<Exclude<FaultKind, 'unknown'>, string>> = {
  auth: "The model's provider does not accept this oracle's key.",
  billing: 'The account that pays for the model is out of credit.',
  rate_limit: 'The model is asked too often at the moment. Please try again shortly.',
  timeout: 'The model took too long to answer.',
  server: "The model's provider has a fault at the moment.",
  network: 'The connection to the model failed.',
};
const passing: ReadonlySet<FaultKind> = new Set(['rate_limit', 'timeout', 'server', 'network']);

/** The fault of a kind, in words for the user; `detail` is for the log. */
export function faultOfKind(
  kind: Exclude<FaultKind, 'unknown'>,
  detail: string,
  retryAfterSeconds?: number,
): ModelFault {
  return new ModelFault(sentences[kind], {
    kind,
    retryable: passing.has(kind),
    retryAfterSeconds,
    cause: new Error(short(detail)),
  });
}

/** The fault behind a provider's error reply. */
export function faultOfRefusal(refusal: Refusal): ModelFault {
  const { status, text, code = '', retryAfterSeconds } = refusal;
  const kind = kindOf(status, `${code} ${text}`);
  if (kind !== 'unknown') return faultOfKind(kind, `${status} ${code}: ${text}`, retryAfterSeconds);
  return new ModelFault(
    `The model's provider refused the request: ${short(text) || code || status}`,
    {
      kind,
      retryable: false,
      cause: new Error(short(`${status} ${code}`)),
    },
  );
}

const OUT_OF_CREDIT =
  /insufficient_quota|billing_(hard_limit|error|not_active)|credit balance|insufficient (credits?|funds|balance)|payment required/i;
const BAD_KEY = /api[ _]key[ _](not valid|invalid|expired)|invalid[ _]api[ _]key/i;
const OVERLOADED = /overloaded/i;

function kindOf(status: number, text: string): FaultKind {
  if (status === 402 || (status < 500 && OUT_OF_CREDIT.test(text))) return 'billing';
  if (status === 401 || status === 403 || (status === 400 && BAD_KEY.test(text))) return 'auth';
  if (status === 429) return 'rate_limit';
  if (status === 408 || status === 504) return 'timeout';
  if (status >= 500 || OVERLOADED.test(text)) return 'server';
  return 'unknown';
}

const TEXT_LENGTH = 200;

/** Cuts a provider's text to one safe line: no addresses, nothing that could be a key. */
function short(text: string): string {
  const line = text
    .slice(0, 2000)
    .replace(/[a-z][a-z0-9+.-]*:\/\/\S+/gi, '…')
    .replace(/[\w*-]*(?:[\w-]{30,}|\*{3,}|sk-[\w-]+)[\w*-]*/g, '…')
    .replace(/[\s\p{Cc}]+/gu, ' ')
    .trim();
  return line.length > TEXT_LENGTH ? `${line.slice(0, TEXT_LENGTH)}…` : line;
}
