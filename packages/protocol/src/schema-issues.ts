// Without zod: the browser client imports this at run time, and must not load zod for it.

/** A value can have a hundred thousand errors; the first few are enough to fix it. */
const MAX_LINES = 20;
const MAX_LINE_LENGTH = 300;

type Step = PropertyKey | { readonly key: PropertyKey };

/** An issue of any Standard Schema; zod's have the most details. */
export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly Step[] | undefined;
  readonly code?: string;
  /** Of `unrecognized_keys`. */
  readonly keys?: readonly string[];
  /** Of `invalid_union`: the issues of each alternative. */
  readonly errors?: readonly (readonly SchemaIssue[])[];
}

/** One line per issue, with its field; `whole` names the value itself. */
export function describeIssues(issues: readonly SchemaIssue[], whole: string): string[] {
  const lines = issues.flatMap((issue) => formatIssue(issue, whole));
  const shown = lines.slice(0, MAX_LINES).map((line) => line.slice(0, MAX_LINE_LENGTH));
  const more = lines.length - shown.length;
  return more > 0 ? [...shown, `and ${more} more`] : shown;
}

function formatIssue(
  { path = [], message, code, keys = [], errors = [] }: SchemaIssue,
  whole: string,
): string[] {
  const steps = path.map((step) => String(typeof step === 'object' ? step.key : step));
  if (code === 'unrecognized_keys')
    return keys.map((key) => `${[...steps, key].join('.')}: unknown field`);
  const wanted = errors.flatMap(([first]) => (first ? (formatIssue(first, whole)[0] ?? []) : []));
  const alternatives = wanted.length > 0 ? `: ${wanted.join(', or ')}` : '';
  return [`${steps.join('.') || whole}: ${message}${alternatives}`];
}
