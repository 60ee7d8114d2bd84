import type { z } from 'zod';

const LIMIT = 10;

type Issue = z.core.$ZodIssue;

/** What is wrong with an input, one line for each field, for a model to mend. */
export function describeIssues(issues: readonly Issue[]): string[] {
  const lines = issues.slice(0, LIMIT).map(describe);
  const more = issues.length - LIMIT;
  return more > 0 ? [...lines, `and ${more} more`] : lines;
}

function describe(issue: Issue): string {
  const field = issue.path.map(String).join('.') || 'input';
  return `${field}: ${messageOf(issue)}`;
}

/** Of a value that fits no alternative, what each of them would have wanted. */
function messageOf(issue: Issue): string {
  if (issue.code !== 'invalid_union' || issue.errors.length === 0) return issue.message;
  const wanted = issue.errors.map(([first]) => (first ? describe(first) : ''));
  return `${issue.message}: ${wanted.filter(Boolean).join(', or ')}`;
}
