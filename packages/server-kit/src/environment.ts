import { z } from 'zod';

/** Variables by name, as the environment holds them. */
export type Variables = Readonly<Record<string, string | undefined>>;

/** Reads the environment; an empty variable counts as unset. */
export function readEnvironment(env: Variables = process.env): Variables {
  return Object.fromEntries(Object.entries(env).filter(([, value]) => value?.trim()));
}

/** One reason why a program cannot start, and what the operator can do about it. */
export interface ConfigIssue {
  /** A variable and its owner, such as `PORT (host)`, or another subject, such as `plugin slack`. */
  readonly subject: string;
  readonly problem: string;
  readonly remedy: string;
}

/** All reasons why a program cannot start, in one message for the operator. */
export class ConfigError extends Error {
  override readonly name: string = 'ConfigError';

  constructor(
    program: string,
    readonly issues: readonly ConfigIssue[],
    options?: ErrorOptions,
  ) {
    const count = issues.length === 1 ? 'one thing is' : `${issues.length} things are`;
    const lines = issues.map(
      ({ subject, problem, remedy }) => `  ${subject}: ${problem}\n      → ${remedy}`,
    );
    super(`The ${program} cannot start, ${count} wrong:\n${lines.join('\n')}`, options);
  }
}

/** The program or plugin that reads variables. */
export interface VariableOwner<Schema extends z.ZodObject> {
  readonly name: string;
  readonly schema: Schema;
  /** What fixes an invalid variable besides correcting it. */
  readonly remedy: string;
}

export type ReadVariables<Schema extends z.ZodObject> =
  | { readonly values: z.output<Schema>; readonly issues?: never }
  | { readonly values?: never; readonly issues: readonly ConfigIssue[] };

/** Validates the variables that the schema names; its owner sees no others. */
export function readVariables<Schema extends z.ZodObject>(
  env: Variables,
  owner: VariableOwner<Schema>,
): ReadVariables<Schema> {
  // Parsed once, so code generated for the schema would cost more than it saves.
  const parsed = owner.schema.safeParse(pickVariables(env, owner.schema), { jitless: true });
  if (parsed.success) return { values: parsed.data };
  return { issues: parsed.error.issues.map((issue) => toConfigIssue(issue, env, owner)) };
}

/** The part of the environment that a schema names. */
export function pickVariables(env: Variables, schema: z.ZodObject): Variables {
  const names = new Set(Object.keys(schema.shape));
  return Object.fromEntries(Object.entries(env).filter(([name]) => names.has(name)));
}

function toConfigIssue(
  issue: z.core.$ZodIssue,
  env: Variables,
  { name, schema, remedy }: VariableOwner<z.ZodObject>,
): ConfigIssue {
  const variable = String(issue.path[0] ?? '');
  const meaning = schema.shape[variable]?.description;
  const isMissing = variable !== '' && env[variable] === undefined;
  return {
    subject: variable ? `${variable} (${name})` : name,
    problem: isMissing ? 'is not set' : issue.message,
    remedy: meaning ? `${meaning}. ${remedy}` : remedy,
  };
}

/** System errors about an address, a file or a folder that cannot be used. */
const OPERATOR_ERRORS: ReadonlySet<string> = new Set([
  'EADDRINUSE',
  'EADDRNOTAVAIL',
  'ENOTFOUND',
  'EACCES',
  'EPERM',
  'EEXIST',
  'EISDIR',
  'ENOTDIR',
  'EROFS',
  'ENOSPC',
]);

/** Whether the operator can fix an error, so that its message is enough and a stack would only confuse. */
export function isOperatorError(error: unknown): error is Error {
  const { code = '' } = (error ?? {}) as NodeJS.ErrnoException;
  return error instanceof ConfigError || OPERATOR_ERRORS.has(code);
}

const SIZE = /^(\d+)(kb|mb|gb)?$/;
const SIZE_UNITS = { kb: 1024, mb: 1024 ** 2, gb: 1024 ** 3 };

const list = z.string().transform((text) =>
  text
    .split(',')
    .map((item) => item.trim())
    .filter(Boolean),
);
const wholeNumber = z
  .string()
  .regex(/^\d+$/, { error: 'must be a whole number' })
  .transform(Number);
const positive = wholeNumber.refine((value) => value > 0, { error: 'must be at least 1' });

/** Schemas of variables that several programs have. */
export const variable = {
  flag: z.enum(['true', 'false']).transform((value) => value === 'true'),
  wholeNumber,
  positive,
  /** Short enough for a timer. */
  seconds: positive.refine((value) => value <= 2_000_000, { error: 'must be at most 2000000' }),
  port: wholeNumber.refine((value) => value <= 65_535, { error: 'must be a port, at most 65535' }),
  /** Items separated by commas. */
  list,
  /** A number of bytes, such as `512kb`. */
  size: z
    .string()
    .toLowerCase()
    .regex(SIZE, { error: 'must be a size, such as 512kb or 64mb' })
    .transform((text) => {
      const [, digits, unit] = SIZE.exec(text) ?? [];
      return Number(digits) * (SIZE_UNITS[unit as keyof typeof SIZE_UNITS] ?? 1);
    }),
  did: z.string().regex(/^did:[a-z0-9]+:\S+$/, { error: 'must be a DID, such as did:web:…' }),
  origins: list
    .transform((items) => items.map((item) => item.replace(/\/$/, '')))
    .refine((items) => items.every((item) => item === '*' || isOrigin(item)), {
      error: 'must be * or origins such as https://chat.example, separated by commas',
    }),
  httpUrl: z.url({ protocol: /^https?$/, error: 'must be an http(s) URL' }),
  logLevel: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']),
};

function isOrigin(text: string): boolean {
  return URL.canParse(text) && new URL(text).origin === text;
}
