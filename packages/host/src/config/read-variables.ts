import type { z } from 'zod';

/** Variables by name, as the environment holds them. */
export type Variables = Readonly<Record<string, string | undefined>>;

/** Reads the environment once; an empty variable counts as unset. */
export function readEnvironment(env: Variables = process.env): Variables {
  return Object.fromEntries(Object.entries(env).filter(([, value]) => value?.trim()));
}

/** Whose variables are read, and what mends a wrong one beside setting it right. */
export interface VariableOwner<Schema extends z.ZodObject> {
  readonly name: string;
  readonly schema: Schema;
  readonly remedy: string;
}

/** The values of an owner's own variables, or all that is wrong with them. */
export type ReadVariables<Schema extends z.ZodObject> =
  | { readonly values: z.output<Schema> }
  | { readonly faults: readonly BootFault[] };

/** Checks the variables that the schema names; its owner gets to see no others. */
export function readVariables<Schema extends z.ZodObject>(
  env: Variables,
  owner: VariableOwner<Schema>,
): ReadVariables<Schema> {
  const parsed = owner.schema.safeParse(ownVariables(env, owner.schema));
  if (parsed.success) return { values: parsed.data };
  return { faults: parsed.error.issues.map((issue) => faultOf(issue, env, owner)) };
}

/** The part of the environment that a schema names. */
export function ownVariables(env: Variables, schema: z.ZodObject): Variables {
  const names = new Set(Object.keys(schema.shape));
  return Object.fromEntries(Object.entries(env).filter(([name]) => names.has(name)));
}

function faultOf(
  issue: z.core.$ZodIssue,
  env: Variables,
  { name, schema, remedy }: VariableOwner<z.ZodObject>,
): BootFault {
  const variable = String(issue.path[0] ?? '');
  const meaning = schema.shape[variable]?.description;
  const isMissing = variable !== '' && env[variable] === undefined;
  return {
    subject: variable ? `${variable} (${name})` : name,
    problem: isMissing ? 'is not set' : issue.message,
    remedy: meaning ? `${meaning}. ${remedy}` : remedy,
  };
}

/** One thing that keeps the host from starting, and what the operator can do about it. */
export interface BootFault {
  /** A variable and whose it is, such as `PORT (host)`, or what else is wrong, such as `plugin slack`. */
  readonly subject: string;
  readonly problem: string;
  readonly remedy: string;
}

/** All that keeps the host from starting, in one message for the operator. */
export class BootError extends Error {
  override readonly name = 'BootError';

  constructor(faults: readonly BootFault[]) {
    const count = faults.length === 1 ? 'one thing is' : `${faults.length} things are`;
    super(`The host cannot start, ${count} wrong:\n${faults.map(lineOf).join('\n')}`);
  }
}

const lineOf = ({ subject, problem, remedy }: BootFault) =>
  `  ${subject}: ${problem}\n      → ${remedy}`;

/** Throws all faults together, if there are any. */
export function assertNoFaults(faults: readonly BootFault[]): void {
  if (faults.length > 0) throw new BootError(faults);
}

/** Whether an npm script started this process. */
export const isRunByNpm = (): boolean => process.env.npm_lifecycle_event !== undefined;
