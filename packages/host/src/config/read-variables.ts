import type { z } from 'zod';
import type { BootFault } from './boot-error.js';

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
