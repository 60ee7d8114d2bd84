import { type ReplyWarning, TimeZone } from '@sibyl/protocol';

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
