/** One thing a scripted model says; texts are sent piece by piece. */
export type Said =
  | { readonly text: readonly string[] }
  | { readonly reasoning: readonly string[] }
  | { readonly toolCall: { readonly id: string; readonly name: string; readonly input: string } };

export interface ScriptedUsage {
  readonly input: number;
  readonly output: number;
  readonly cached: number;
}

/** How a reply ends, if not well. */
export type Ending =
  | 'drops-before-headers'
  | 'drops-after-headers'
  | 'drops-mid-event'
  | 'drops-before-finish'
  | 'ends-before-finish'
  | 'stalls-before-headers'
  | 'stalls-before-finish'
  | 'malformed';

/** What the server answers to one request. */
export interface ScriptedReply {
  readonly say?: readonly Said[];
  readonly usage?: ScriptedUsage;
  readonly ending?: Ending;
  /** An error reply instead: its status, headers and JSON body. */
  readonly error?: {
    readonly status: number;
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: unknown;
  };
  /** Further events after what is said, as the wire has them; an error in the stream, for instance. */
  readonly events?: readonly string[];
}

/** A reply in its provider's events, the ones that end it apart. */
export interface EncodedReply {
  readonly content: readonly string[];
  readonly finish: readonly string[];
}

export const scriptedUsage: ScriptedUsage = { input: 100, output: 20, cached: 40 };

export function sse(data: unknown, event?: string): string {
  const name = event ? `event: ${event}\n` : '';
  return `${name}data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`;
}
