/** More than anybody mends at once; a value can be wrong in a hundred thousand places. */
const MOST_LINES = 20;
const LONGEST_LINE = 300;

type Step = PropertyKey | { readonly key: PropertyKey };

/** What a schema found wrong: any Standard Schema's issue, of which zod's tell the most. */
export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly Step[] | undefined;
  readonly code?: string;
  /** Of `unrecognized_keys`. */
  readonly keys?: readonly string[];
  /** Of `invalid_union`: what is wrong with each alternative. */
  readonly errors?: readonly (readonly SchemaIssue[])[];
}

/** One line for each thing that is wrong, with the field it is wrong in; `whole` names the value itself. */
export function describeIssues(issues: readonly SchemaIssue[], whole: string): string[] {
  const lines = issues.flatMap((issue) => linesOf(issue, whole));
  const told = lines.slice(0, MOST_LINES).map((line) => line.slice(0, LONGEST_LINE));
  const more = lines.length - told.length;
  return more > 0 ? [...told, `and ${more} more`] : told;
}

function linesOf(
  { path = [], message, code, keys = [], errors = [] }: SchemaIssue,
  whole: string,
): string[] {
  const steps = path.map((step) => String(typeof step === 'object' ? step.key : step));
  if (code === 'unrecognized_keys')
    return keys.map((key) => `${[...steps, key].join('.')}: unknown field`);
  const wanted = errors.flatMap(([first]) => (first ? (linesOf(first, whole)[0] ?? []) : []));
  const alternatives = wanted.length > 0 ? `: ${wanted.join(', or ')}` : '';
  return [`${steps.join('.') || whole}: ${message}${alternatives}`];
}
