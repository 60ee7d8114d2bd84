import { z } from 'zod';

/** A key as the operator keeps it: never the key itself. */
export interface ApiKey {
  /** For logs and metrics. */
  readonly name: string;
  readonly sha256: Buffer;
  /** Requests a minute. */
  readonly limit: number | undefined;
  /** Route templates it opens, a `*` at the end standing for the rest; unset: all. */
  readonly scopes: readonly string[] | undefined;
}

const FORM = /^([0-9a-f]{64})((?:;[a-z]+=[^;]*)*)$/i;
const NAME = /^[\w.-]{1,64}$/;
const LIMIT = /^[1-9]\d{0,8}$/;
const SCOPE = /^\/[^\s*]*\*?$/;

/** Reads one entry of GATEWAY_API_KEYS: the digest, then `;name=`, `;limit=` and `;scope=` as wished. */
export const ApiKey = z.string().transform((text, context): ApiKey => {
  const [, digest = '', rest = ''] = FORM.exec(text) ?? [];
  const { name = digest.slice(0, 8), limit, scope, ...others } = parametersOf(rest);
  const scopes = scope?.split('|');
  const problem =
    (!digest && 'must be 64 hex digits each, then ;name=…, ;limit=… or ;scope=…') ||
    (Object.keys(others).length > 0 && `knows no ;${Object.keys(others)[0]}=`) ||
    (!NAME.test(name) && 'has a name that is not plain') ||
    (limit !== undefined && !LIMIT.test(limit) && 'has a limit that is no number') ||
    (scopes && !scopes.every((item) => SCOPE.test(item)) && 'has a scope that is no route');
  if (problem) {
    context.addIssue({ code: 'custom', message: problem });
    return z.NEVER;
  }
  return {
    name,
    sha256: Buffer.from(digest, 'hex'),
    limit: limit === undefined ? undefined : Number(limit),
    scopes,
  };
});

function parametersOf(text: string): Record<string, string> {
  const pairs = text.split(';').filter(Boolean);
  return Object.fromEntries(pairs.map((pair) => pair.split(/=(.*)/, 2) as [string, string]));
}
