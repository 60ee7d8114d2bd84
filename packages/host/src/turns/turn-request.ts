import { type ReplyWarning, type SendMessage, TimeZone } from '@sibyl/protocol';
import type { Caller } from '../auth/caller.js';

/** One message on its way to an answer, however it came in. */
export interface TurnRequest {
  readonly caller: Caller;
  readonly sessionId: string;
  readonly requestId: string;
  readonly message: Omit<SendMessage, 'stream' | 'returnAllMessages' | 'requestId'>;
  /** What the transport knows of the user, overruled by what the message says. */
  readonly user: {
    readonly timezone?: string | undefined;
    readonly matrixHomeServer?: string | undefined;
    readonly matrixAccessToken?: string | undefined;
  };
  /** What was left out of the request before the turn began. */
  readonly warnings?: readonly ReplyWarning[] | undefined;
  /** What brought the message, such as `api`. */
  readonly client: string;
  /** Makes a repeated request find the first one's run. */
  readonly idempotencyKey?: string | undefined;
}

/** Characters of an unknown name that a warning repeats. */
const SHOWN = 64;

interface UserTimezone {
  readonly timezone?: string;
  readonly warnings: readonly ReplyWarning[];
}

/** The first of these names that is a time zone; an unknown name costs the time zone and nothing else. */
export function readTimezone(...names: readonly (string | undefined)[]): UserTimezone {
  const warnings: ReplyWarning[] = [];
  for (const name of names) {
    if (!name) continue;
    if (TimeZone.safeParse(name).success) return { timezone: name, warnings };
    warnings.push(unknownTimezone(name));
  }
  return { warnings };
}

function unknownTimezone(name: string): ReplyWarning {
  const shown = JSON.stringify(name.slice(0, SHOWN).toWellFormed());
  return {
    code: 'unknown_timezone',
    message: `The time zone ${shown} is unknown and was ignored. Use an IANA name, such as Africa/Nairobi.`,
  };
}
