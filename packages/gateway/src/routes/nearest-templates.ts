import type { PathTemplate, Step } from './path-template.js';

/** Bounds on the work for one unknown path. */
const MAX_SEGMENTS = 16;
const MAX_LENGTH = 64;
const MAX_CANDIDATES = 32;
const MOST = 3;

const FITS = { equal: 3, alike: 2, variable: 1, not: 0 };

/** Suggests the most similar templates for an unknown path. */
export class NearestTemplates {
  /** The templates that have a text among their steps. */
  private readonly byText = new Map<string, PathTemplate[]>();

  constructor(templates: readonly PathTemplate[]) {
    for (const template of templates)
      for (const text of new Set(template.steps.flatMap(listTexts))) {
        const others = this.byText.get(text);
        if (others) others.push(template);
        else this.byText.set(text, [template]);
      }
  }

  /** The best first; none if the path has nothing in common with any. */
  find(segments: readonly string[]): PathTemplate[] {
    const path = segments.slice(0, MAX_SEGMENTS).map((segment) => segment.slice(0, MAX_LENGTH));
    return this.candidates(path)
      .map((template) => ({ template, score: likeness(path, template.steps) }))
      .sort((a, b) => b.score - a.score)
      .slice(0, MOST)
      .map(({ template }) => template);
  }

  /** Those that share most texts with the path. */
  private candidates(path: readonly string[]): PathTemplate[] {
    const shared = new Map<PathTemplate, number>();
    for (const text of new Set(path))
      for (const template of this.byText.get(text) ?? [])
        shared.set(template, (shared.get(template) ?? 0) + 1);
    return [...shared]
      .sort(([, a], [, b]) => b - a)
      .slice(0, MAX_CANDIDATES)
      .map(([template]) => template);
  }
}

function listTexts(step: Step): string[] {
  return typeof step === 'object' ? [step.text] : [];
}

/** Similarity by sequence alignment, minus the difference in length. */
function likeness(path: readonly string[], steps: readonly Step[]): number {
  let row = new Array<number>(path.length + 1).fill(0);
  for (const step of steps) {
    const next = [0];
    for (const [i, segment] of path.entries()) {
      const both = (row[i] as number) + fit(step, segment);
      next.push(Math.max(both, row[i + 1] as number, next[i] as number));
    }
    row = next;
  }
  return (row.at(-1) as number) - Math.abs(path.length - steps.length);
}

function fit(step: Step, segment: string): number {
  if (typeof step === 'string') return FITS.variable;
  if (step.text === segment) return FITS.equal;
  return isAlike(step.text, segment) ? FITS.alike : FITS.not;
}

/** Whether two texts differ by at most two letters in one place, such as a typo or a plural. */
function isAlike(a: string, b: string): boolean {
  const shorter = Math.min(a.length, b.length);
  let start = 0;
  while (start < shorter && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < shorter - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  return start + end > 1 && Math.max(a.length, b.length) - start - end <= 2;
}
